"""Printer of LIR text, in Glow's format.

What Glow derives (sizes) is derived here too; its ``// Users:`` lists are left out, for their
order has no rule.
"""

from __future__ import annotations

import json
import re

from nmpsim.lir.line import PLAIN_NAME
from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Module,
    Quantization,
    TensorType,
    WeightVar,
)

_PLAIN_NAME = re.compile(PLAIN_NAME, re.ASCII)


def format_name(name: str) -> str:
    """Format a name as LIR text: ``%name``, quoted if it has special characters."""
    return f"%{name}" if _PLAIN_NAME.fullmatch(name) else f"%{json.dumps(name, ensure_ascii=False)}"


def format_scale(scale: float) -> str:
    """Format a scale as LIR text with nine decimals."""
    return f"{scale:.9f}"


def format_type(type: TensorType) -> str:
    """Format a type as LIR text, such as ``i8[S:0.500000000 O:0][-64.000,63.500]<1 x 10>``."""
    alignments = type.alignments or (1,) * len(type.shape)
    dims = (
        f"{dim}:{alignment}" if alignment != 1 else str(dim)
        for dim, alignment in zip(type.shape, alignments, strict=True)
    )
    return f"{type.elem}{_format_quantization(type.quant)}<{' x '.join(dims)}>"


def _format_quantization(quant: Quantization | None) -> str:
    if quant is None:
        return ""
    scale = format_scale(quant.scale)
    return f"[S:{scale} O:{quant.offset}][{quant.low:.3f},{quant.high:.3f}]"


def format_module(module: Module) -> str:
    """Format a module as LIR text; ``parse`` converts the text back to an equal module."""
    size = sum(weight.type.nbytes for weight in module.weights)
    lines = [f"function {module.name}", "declare {"]
    lines += [_format_weight(weight) for weight in module.weights]
    lines += ["", f"  ; size = {size} bytes", "}", "", "code {"]
    buffers: dict[str, TensorType] = {}
    for instruction in module.instructions:
        lines.append(format_instruction(instruction) + _size_comment(instruction, buffers))
    lines += ["}", ""]
    return "\n".join(lines)


def _format_weight(weight: WeightVar) -> str:
    kind = "const" if weight.constant else "mutable"
    text = f"  {format_name(weight.name)} = WeightVar {format_type(weight.type)} {kind}"
    return f"{text} // size: {weight.type.nbytes}"


def _format_predicate(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else format_name(name)


def format_instruction(instruction: Instruction) -> str:
    """Format an instruction as a line of LIR text without its comment."""
    head = f"  {instruction.number} {format_name(instruction.name)} = {instruction.opcode} "
    predicate = (
        f"[ pred: {_format_predicate(instruction.predicate)} ] " if instruction.predicate else ""
    )
    operands = ", ".join(f"{o.kind} {format_name(o.name)}" for o in instruction.operands)
    values = ", ".join(
        f"{key}: {_format_value(value)}" for key, value in instruction.attributes.items()
    )
    return head + predicate + operands + (f" {{ {values}}}" if values else "")


def _format_value(value: AttributeValue) -> str:
    if isinstance(value, TensorType):
        return format_type(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    if isinstance(value, float):
        return _format_float(value)
    return str(value)


def _format_float(value: float) -> str:
    """Return Glow's six decimals, or more if they would lose digits."""
    text = f"{value:e}"
    return text if float(text) == value else repr(value)


def _size_comment(instruction: Instruction, buffers: dict[str, TensorType]) -> str:
    """Return ``// size: N`` for the start and end of a buffer; ``buffers`` is updated."""
    if instruction.opcode == "allocactivation":
        type = instruction.attributes.get("Ty")
        if not isinstance(type, TensorType):
            return ""
        buffers[instruction.name] = type
        return f" // size: {type.nbytes}"
    if instruction.opcode == "deallocactivation" and instruction.operands:
        freed = buffers.get(instruction.operands[0].name)
        return f" // size: {freed.nbytes}" if freed else ""
    return ""
