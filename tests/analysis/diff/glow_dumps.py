"""Write dumps like Glow's compiler and its instrumented programs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

KINDS = {
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "float32": "float",
    "int64": "index64",
    "bool": "bool",
}


@attrs.frozen(eq=False)
class DumpedTensor:
    """Operand of an instruction with its elements."""

    instruction: str
    operand: str
    values: npt.NDArray[Any]
    quant: str = ""
    when: str = "after"

    @property
    def type(self) -> str:
        kind = KINDS[self.values.dtype.name]
        return f"{kind}{self.quant}<{' x '.join(map(str, self.values.shape))}>"


def write_folder(
    folder: Path, format: str, tensors: list[DumpedTensor], name: str = "Kind"
) -> Path:
    """Write tensor files as a program does, and their list as the compiler does."""
    folder.mkdir(exist_ok=True)
    lines = [f"Format: {format}"]
    last = None
    index = 0
    for number, one in enumerate(tensors):
        if one.instruction != last:
            lines += ["", f"{name}: convolution", f"Name: {one.instruction}"]
            index = 0
        last = one.instruction
        file = f"data{number:04d}.{'bin' if format.endswith('bin') else 'txt'}"
        lines.append(f"[{index}] {one.operand + ':':<10s} {file}    {one.type}")
        index += 1
        (folder / file).write_bytes(contents(one, format))
    (folder / "instrument-debug.info").write_text("\n".join(lines) + "\n")
    return folder


def contents(one: DumpedTensor, format: str) -> bytes:
    if format.endswith("bin"):
        head = "" if format == "rawbin" else one.type
        return head.encode() + np.ascontiguousarray(one.values).tobytes()
    head = "" if format == "rawtxt" else one.type + "\n"
    return (head + "".join(f"{float(v):f}, " for v in one.values.reshape(-1))).encode()


def console_text(tensors: list[DumpedTensor]) -> str:
    """Return the text that an instrumented program prints: at most 100 numbers per tensor."""
    return "".join(_printed(one) for one in tensors)


def _printed(one: DumpedTensor) -> str:
    text = f"debug_print.{one.when}.{one.instruction}.{one.operand}.convolution\n"
    shape, flat = one.values.shape, one.values.reshape(-1)
    if not shape:
        return text + f"[ Scalar containing: {float(flat[0]):.3f} ]\n"
    text += f"shape: ( {''.join(f'{n} ' for n in shape)})\n"
    if not flat.any():
        return text + "[ Zero tensor ]\n"
    text += f"max: {float(flat.max()):.3f}  min: {float(flat.min()):.3f}\n["
    slices = [math.prod(shape[axis + 1 :]) for axis in range(len(shape) - 1)]
    for index, value in enumerate(flat[:100]):
        text += "[" * sum(index % size == 0 for size in slices)
        text += f"{float(value):.3f}"
        ends = sum((index + 1) % size == 0 for size in slices)
        text += "]" * ends + ", " + "\n" * ends
    return text + ("..." if flat.size > 100 else "") + "]\n"
