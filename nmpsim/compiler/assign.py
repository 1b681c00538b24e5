"""Assignment of numerics profiles to operations, by default and by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from nmpsim.bundle.formulas import CustomFormulas
from nmpsim.compiler.numerics import PROFILES, get_profile_name
from nmpsim.compiler.operations import Operation
from nmpsim.diagnostics import UserError, did_you_mean, fail, quote
from nmpsim.isa.profiles import NUMERICS
from nmpsim.lir.layers import LayerEntry, find_operations
from nmpsim.lir.names import make_display_names
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind


def assign_numerics(
    operations: tuple[Operation, ...],
    numerics: str,
    by_name: Mapping[str, str] | None = None,
    formulas: CustomFormulas | None = None,
) -> tuple[Operation, ...]:
    """Assign a numerics profile to each operation: ``by_name[name]`` if present, or ``numerics``.

    Operations of the base of ``formulas`` get its tables of factors; operations that are no sums of
    products and have no table get its profile ``others``.

    Raises
    ------
    UserError
        COMP001 for an unknown profile.
    """
    by_name = by_name or {}
    base, factors = (formulas.base, formulas.factors) if formulas else ("", {})
    for profile in (numerics, *by_name.values()):
        if profile not in PROFILES:
            raise _unknown("numerics profile", profile, PROFILES, ", ".join(PROFILES))
    assigned = []
    for op in operations:
        has_sums = op.kind in WEIGHTED or op.kind is OpcodeKind.PRODUCT
        has_factors = has_sums or op.instruction.opcode in factors
        default = formulas.others if formulas and formulas.others and not has_factors else numerics
        profile = by_name.get(op.instruction.name, default)
        assigned.append(
            attrs.evolve(
                op,
                numerics=profile,
                chosen=op.instruction.name in by_name,
                factors=factors if profile == base else {},
            )
        )
    return tuple(assigned)


def check_custom_formulas(formulas: CustomFormulas, operations: Iterable[Operation]) -> None:
    """Raise UserError (ARG001) if custom formulas affect operations outside their base profile."""
    uses = {row.name: row.profiles for row in NUMERICS}
    for op in operations:
        name = get_profile_name(op)
        if name not in ("", formulas.base) and set(uses[name]) & set(formulas.profiles):
            raise fail(
                "ARG001",
                "the custom formulas also apply to a layer with another profile",
                found=f"{quote(op.instruction.name)} with numerics {name}",
                expected=f"numerics {formulas.base}, or a profile with other formulas",
                hint="Leave out --numerics LAYER=PROFILE.",
            )


def list_layer_operations(layers: Sequence[Operation]) -> list[LayerEntry]:
    """Return an entry with layer index and display name for each operation of fused layers."""
    shown = make_display_names([op.last_fused.instruction.name for op in layers])
    return [
        LayerEntry(
            index,
            part.instruction.number,
            part.instruction.span.line,
            part.instruction.name,
            "host" if op.host_reason else "device",
            tuple(view.name for view in part.list_outputs()[:1]),
            shown[index],
        )
        for index, op in enumerate(layers)
        for part in (op, *op.fused)
    ]


def expand_layer_numerics(
    layers: Sequence[Operation], by_layer: Mapping[str, str]
) -> dict[str, str]:
    """Expand numerics profiles of layers to those of their instructions; return them by name.

    Parameters
    ----------
    layers : sequence of Operation
        Layers of the program after fusion.
    by_layer : mapping of str to str
        Layer, as for :func:`~nmpsim.lir.layers.find_layer`, to profile.

    Raises
    ------
    UserError
        COMP001 for a word that names no layer or several; ARG001 if two of them name one operation.
    """
    parts = list_layer_operations(layers)
    named: dict[str, str] = {}
    for word, profile in by_layer.items():
        for part in find_operations(parts, word, "COMP001"):
            if part.name in named:
                raise fail(
                    "ARG001",
                    f"layer {part.name} has two numerics profiles",
                    found=f"{named[part.name]}, and {profile} by the name {quote(word)}",
                    expected="one profile for each layer",
                    hint=f"Leave out --numerics {quote(word)}={profile}.",
                )
            named[part.name] = profile
    return named


def _unknown(what: str, name: str, known: Iterable[str], expected: str) -> UserError:
    hint = (
        did_you_mean(name, sorted(known))
        or "See `nmpsim compile --help` for the values of --numerics."
    )
    return fail(
        "COMP001",
        f"unknown {what}",
        found=quote(name) or "an empty name",
        expected=expected,
        hint=hint,
    )
