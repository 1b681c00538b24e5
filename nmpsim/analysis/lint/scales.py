"""The rules ``scale-not-power-of-two`` and ``scales-lost-in-print``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from nmpsim.analysis.lint.findings import Finding, Severity
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.weighted import values_of
from nmpsim.compiler.operations import Operation
from nmpsim.lir.nodes import Span, TensorType
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.printer import format_scale

NOT_POWER, LOST = "scale-not-power-of-two", "scales-lost-in-print"
HALF_DIGIT = 0.5e-9
"""Half of the last of nine printed decimals."""
INTEGER_FORM = 2.0**-9
"""Relative error of Glow's integer form of a factor; a scale that is worse spoils results."""
_SCALE_TABLES = {"FilterScales", "BiasScales", "Scales"}


@attrs.frozen
class ScaledTensor:
    """A weight, buffer or view with a scale of its own."""

    name: str
    type: TensorType
    scale: float
    span: Span


def scaled_tensors(subject: Subject) -> Iterator[ScaledTensor]:
    """Every tensor whose scale counts: not that of what has one a channel."""
    module = subject.module
    idle = {name for op in subject.operations for name in _without_meaning(op)}
    typed = [(w.name, w.type, w.span) for w in module.weights]
    typed += [
        (i.name, type_, i.span)
        for i in module.instructions
        if isinstance(type_ := i.attributes.get("Ty"), TensorType)
    ]
    for name, type_, span in typed:
        if type_.quant is not None and name not in idle:
            yield ScaledTensor(name, type_, type_.quant.scale, span)


def _without_meaning(op: Operation) -> Iterator[str]:
    """Operands whose type has a scale that nothing reads: tables have them by channel."""
    operands = OPCODES[op.instruction.opcode].operands
    yield from (v.name for r, v in zip(operands, op.operands, strict=True) if r.is_scratch)
    roles = [role.name for role in operands]
    for table, owner in (("FilterScales", 2), ("Scales", 2), ("BiasScales", 3)):
        if table in roles:
            yield from (op.operands[owner].name, op.operands[owner].buffer.name)


def check_powers(subject: Subject) -> Iterator[Finding]:
    """Scales that are no powers of two, where the profile is made for them."""
    operations = [op for op in subject.operations if subject.numerics_of(op) == "nmp"]
    concerned = {n for op in operations for v in op.operands for n in (v.name, v.buffer.name)}
    for tensor in scaled_tensors(subject):
        if tensor.name in concerned and not _is_power(tensor.scale):
            yield _no_power(subject, tensor.name, tensor.scale, tensor.span)
    for op in operations:
        yield from _tables(subject, op)


def _tables(subject: Subject, op: Operation) -> Iterator[Finding]:
    roles = OPCODES[op.instruction.opcode].operands
    for role, view in zip(roles, op.operands, strict=True):
        values = values_of(subject.module, view) if role.name in _SCALE_TABLES else None
        odd = [] if values is None else [float(v) for v in values if not _is_power(float(v))]
        if odd:
            yield _no_power(subject, view.name, odd[0], op.instruction.span, len(odd))


def _is_power(scale: float) -> bool:
    return scale > 0 and math.frexp(scale)[0] == 0.5


def _no_power(subject: Subject, name: str, scale: float, span: Span, count: int = 1) -> Finding:
    channels = f" of {count} channels" if count > 1 else ""
    nearest = math.ldexp(1.0, math.ceil(math.log2(scale))) if 0 < scale < math.inf else 1.0
    return Finding(
        NOT_POWER,
        "error",
        f"the scale{channels} of %{name} is no power of two, as numerics nmp needs",
        span.place(subject.module.file),
        tensor=name,
        found=f"{scale!r}",
        expected=f"for example {nearest!r}",
        hint="quantize with the schema symmetric-with-power2-scale",
        facts={"scale": scale, "count": count},
    )


def print_is_unknown(subject: Subject) -> str:
    """Why nothing can be said about what was printed."""
    return "" if subject.printed_only is not None else "the program was not read from LIR text"


def check_print(subject: Subject) -> Iterator[Finding]:
    """Scales of which only the nine printed decimals are known."""
    known_only = subject.printed_only or frozenset()
    for tensor in scaled_tensors(subject):
        if tensor.name in known_only or tensor.scale == 0:
            yield _lost(subject, tensor)
    yield from _snapped(subject)


def digits_left(scale: float) -> int:
    """Significant digits that nine decimals leave of a scale."""
    return len(format_scale(scale).replace(".", "").lstrip("0"))


def _lost(subject: Subject, tensor: ScaledTensor) -> Finding:
    digits = digits_left(tensor.scale)
    error = HALF_DIGIT / tensor.scale if digits else math.inf
    severity: Severity = "error" if error > INTEGER_FORM else "warning"
    plural = "" if digits == 1 else "s"
    return Finding(
        LOST,
        severity,
        f"the scale of %{tensor.name} is known from its printed decimals only",
        tensor.span.place(subject.module.file),
        tensor=tensor.name,
        found=f"{format_scale(tensor.scale)}, {digits} significant digit{plural}: "
        + (f"off by up to {100 * error:.2g} %" if digits else "nothing is left of it"),
        expected="the exact float32",
        hint="--tensors T.json with the exact scales",
        facts={"digits": digits, **({"relative_error": error} if digits else {})},
    )


def _snapped(subject: Subject) -> Iterator[Finding]:
    """One note for all scales that were taken to be the power of two that they print as."""
    tensors = [t for t in scaled_tensors(subject) if t.name in subject.snapped]
    if not tensors:
        return
    fewest = min(tensors, key=lambda tensor: digits_left(tensor.scale))
    digits = digits_left(fewest.scale)
    yield Finding(
        LOST,
        "note",
        f"{len(tensors)} scales are taken to be the powers of two that they print as",
        fewest.span.place(subject.module.file),
        tensor=fewest.name,
        found=f"down to {digits} significant digits: {format_scale(fewest.scale)} as"
        f" {fewest.scale!r}",
        expected="a sidecar with exact scales",
        hint="right if the program was quantized with symmetric-with-power2-scale",
        facts={"count": len(tensors), "digits": digits},
    )
