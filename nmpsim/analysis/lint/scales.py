"""The rules ``scale-not-power-of-two`` and ``scales-lost-in-print``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from nmpsim.analysis.lint.findings import LintFinding, Severity
from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.analysis.weighted import read_constant
from nmpsim.compiler.operations import Operation
from nmpsim.lir.nodes import SourcePosition
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.printer import format_scale
from nmpsim.lir.scales import iterate_types

HALF_PRINTED_DIGIT = 0.5e-9
"""Half a unit of the last of nine printed decimals."""
MAX_INTEGER_FORM_ERROR = 2.0**-9
"""Relative error of Glow's integer form; a larger error of a scale changes results."""
_SCALE_TABLES = {"FilterScales", "BiasScales", "Scales"}


@attrs.frozen
class ScaledTensor:
    """Tensor with a scale: name, scale and source position of a weight, buffer or view."""

    name: str
    scale: float
    span: SourcePosition


def list_scaled_tensors(subject: LintSubject) -> Iterator[ScaledTensor]:
    """Yield each tensor with a scale that an operation uses.

    Tensors of channelwise operations, which have tables of scales, are omitted.
    """
    idle = {name for op in subject.operations for name in _unused_scales(op)}
    for name, type_, span, _ in iterate_types(subject.module):
        if type_.quant is not None and name not in idle:
            yield ScaledTensor(name, type_.quant.scale, span)


def _unused_scales(op: Operation) -> Iterator[str]:
    """Yield operands whose scale is not used, because tables have one per channel."""
    operands = OPCODES[op.instruction.opcode].operands
    yield from (v.name for r, v in zip(operands, op.operands, strict=True) if r.is_scratch)
    roles = [role.name for role in operands]
    for table, owner in (("FilterScales", 2), ("Scales", 2), ("BiasScales", 3)):
        if table in roles:
            yield from (op.operands[owner].name, op.operands[owner].buffer.name)


def check_powers_of_two(subject: LintSubject) -> Iterator[LintFinding]:
    """Report scales that are not powers of two although the numerics profile requires it."""
    operations = [op for op in subject.operations if subject.get_numerics(op) == "nmp"]
    concerned = {n for op in operations for v in op.operands for n in (v.name, v.buffer.name)}
    for tensor in list_scaled_tensors(subject):
        if tensor.name in concerned and not _is_power_of_two(tensor.scale):
            yield _describe_scale(tensor.name, tensor.scale, tensor.span)
    for op in operations:
        yield from _check_scale_tables(subject, op)


def _check_scale_tables(subject: LintSubject, op: Operation) -> Iterator[LintFinding]:
    roles = OPCODES[op.instruction.opcode].operands
    for role, view in zip(roles, op.operands, strict=True):
        values = read_constant(subject.module, view) if role.name in _SCALE_TABLES else None
        odd = [] if values is None else [float(v) for v in values if not _is_power_of_two(float(v))]
        if odd:
            yield _describe_scale(view.name, odd[0], op.instruction.span, len(odd))


def _is_power_of_two(scale: float) -> bool:
    return scale > 0 and math.frexp(scale)[0] == 0.5


def _describe_scale(name: str, scale: float, span: SourcePosition, count: int = 1) -> LintFinding:
    channels = f" of {count} channels" if count > 1 else ""
    nearest = math.ldexp(1.0, math.ceil(math.log2(scale))) if 0 < scale < math.inf else 1.0
    return LintFinding(
        "error",
        f"the scale{channels} of %{name} is not a power of two, as numerics nmp requires",
        span,
        tensor=name,
        found=f"scale {scale!r}",
        expected=f"a power of two, such as {nearest!r}",
        hint="Pass --schema symmetric-with-power2-scale to `nmpsim quantize`, or use other"
        " numerics.",
        facts={"scale": scale, "count": count},
    )


def find_missing_text_reason(subject: LintSubject) -> str:
    """Return the reason why LIR text is missing for a check of printed scales, or "" if present."""
    return "" if subject.printed_only is not None else "the program was not read from LIR text"


def check_printed_scales(subject: LintSubject) -> Iterator[LintFinding]:
    """Report scales of which only the nine printed decimals are known."""
    known_only = subject.printed_only or frozenset()
    for tensor in list_scaled_tensors(subject):
        if tensor.name in known_only or tensor.scale == 0:
            yield _describe_lost_digits(tensor)
    yield from _list_snapped_scales(subject)


def count_significant_digits(scale: float) -> int:
    """Count the significant digits of a scale that is printed with nine decimals."""
    return len(format_scale(scale).replace(".", "").lstrip("0"))


def _describe_lost_digits(tensor: ScaledTensor) -> LintFinding:
    digits = count_significant_digits(tensor.scale)
    error = HALF_PRINTED_DIGIT / tensor.scale if digits else math.inf
    severity: Severity = "error" if error > MAX_INTEGER_FORM_ERROR else "warning"
    plural = "" if digits == 1 else "s"
    return LintFinding(
        severity,
        f"only printed digits of the scale of %{tensor.name} are known",
        tensor.span,
        tensor=tensor.name,
        found=f"scale {format_scale(tensor.scale)} with {digits} significant digit{plural}"
        + (f" and a relative error of up to {100 * error:.2g} %" if digits else ""),
        expected="the exact float32 scale",
        hint="Pass the exact scales with --tensors T.json.",
        facts={"digits": digits, **({"relative_error": error} if digits else {})},
    )


def _list_snapped_scales(subject: LintSubject) -> Iterator[LintFinding]:
    """Report all scales that are assumed to be the power of two they print as, in one note."""
    tensors = [t for t in list_scaled_tensors(subject) if t.name in subject.snapped]
    if not tensors:
        return
    fewest = min(tensors, key=lambda tensor: count_significant_digits(tensor.scale))
    digits = count_significant_digits(fewest.scale)
    yield LintFinding(
        "note",
        f"{len(tensors)} scales are printed with few digits and read as the nearest power of two",
        fewest.span,
        tensor=fewest.name,
        found=f"scales with only {digits} significant digits, such as {format_scale(fewest.scale)},"
        f" which is read as {fewest.scale!r}",
        expected="a file with exact scales",
        hint="Pass --tensors T.json, unless all scales of the program are powers of two.",
        facts={"count": len(tensors), "digits": digits},
    )
