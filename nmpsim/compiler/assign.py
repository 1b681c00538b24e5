"""Which profile each operation follows: one for all, others for those that are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from nmpsim.compiler.numerics import PROFILES
from nmpsim.compiler.work import Operation
from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.messages import did_you_mean, quote


def assign_numerics(
    operations: tuple[Operation, ...], numerics: str, by_layer: Mapping[str, str]
) -> tuple[Operation, ...]:
    """The operations with their profiles; ``by_layer`` has names of instructions.

    Raises :class:`~nmpsim.diagnostics.UserError` COMP001 for a profile or a name that is unknown.
    """
    names = {op.instruction.name for op in operations}
    for profile in (numerics, *by_layer.values()):
        if profile not in PROFILES:
            raise _unknown("arithmetic profile", profile, PROFILES, ", ".join(PROFILES))
    for name in by_layer:
        if name not in names:
            raise _unknown("layer", name, names, "the name of an instruction that computes")
    return tuple(
        attrs.evolve(
            op,
            numerics=by_layer.get(op.instruction.name, numerics),
            chosen=op.instruction.name in by_layer,
        )
        for op in operations
    )


def _unknown(what: str, name: str, known: Iterable[str], expected: str) -> UserError:
    hint = did_you_mean(name, sorted(known)) or "`nmpsim compile --help` says what --numerics takes"
    return fail(
        "COMP001", f"unknown {what}", found=quote(name) or "no name", expected=expected, hint=hint
    )
