"""Instructions that were done, from the rows of a trace: who, when, and which memory it touched."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER, Machine
from nmpsim.core.stops import Row
from nmpsim.debugger.boxes import Box, Space
from nmpsim.isa.table import (
    CHANNEL_RECORD,
    CONTROL_BASE,
    DESCRIPTORS,
    DRAM_BASE,
    INSTRUCTIONS,
    SCALE_RECORD,
    SCRATCHPAD_BASE,
    Format,
    Instruction,
    Unit,
)

Kind = Literal["read", "write"]
SCALAR_BYTES = {"lb": 1, "lbu": 1, "sb": 1, "lh": 2, "lhu": 2, "sh": 2, "lw": 4, "sw": 4}
"""Bytes that scalar loads and stores touch."""


@attrs.frozen
class Touch:
    """A piece of memory that an instruction reads or writes."""

    kind: Kind
    what: str
    """The operand: input, weights, output, ..."""
    box: Box


@attrs.frozen
class Done:
    """An instruction that a core has done."""

    position: int
    """State just after it."""
    core: int
    pc: int
    instruction: Instruction
    begin: int
    """Cycle at which the core came to it."""
    end: int
    """Cycle at which the core went on."""
    rs1: int
    rs2: int
    job: int
    """Number in its unit's queue, -1 if it is for no unit."""
    finished: int | None
    """Cycle at which its unit is done with it; None if that was not known yet."""
    word: int
    words: Mapping[str, int]
    """Words of its descriptor by name, empty if it has none."""
    touches: tuple[Touch, ...]

    @property
    def layer(self) -> int | None:
        """Number of the layer that a tensor instruction works for."""
        return self.words.get("layer")

    @property
    def unit(self) -> Unit | None:
        """The unit that it is for."""
        return self.instruction.unit


def instructions(trace: npt.NDArray[np.int64], machine: Machine) -> Iterator[Done]:
    """Every row of a trace; descriptors are read from memory as it is now."""
    for row in trace:
        yield done_of(row, machine)


def done_of(row: npt.NDArray[np.int64], machine: Machine) -> Done:
    """One row of a trace."""
    instruction = INSTRUCTIONS[int(row[Row.NUMBER])]
    core, rs1, finished = int(row[Row.CORE]), int(row[Row.RS1]), int(row[Row.FINISHED])
    words: dict[str, int] = {}
    if instruction.descriptor is not None:
        words = read_descriptor(machine, core, instruction.descriptor, rs1)
    return Done(
        position=int(row[Row.TURN]) + 1,
        core=core,
        pc=int(row[Row.PC]),
        instruction=instruction,
        begin=int(row[Row.BEGIN]),
        end=int(row[Row.END]),
        rs1=rs1,
        rs2=int(row[Row.RS2]),
        job=int(row[Row.JOB]),
        finished=None if finished >= NEVER else finished,
        word=int(row[Row.WORD]),
        words=words,
        touches=touches_of(instruction, words, int(row[Row.WORD]), rs1),
    )


def read_descriptor(machine: Machine, core: int, name: str, address: int) -> dict[str, int]:
    """Words of a descriptor by their names, signed where they are; zeros beyond memory."""
    record = DESCRIPTORS[name]
    data = memory_at(machine, core, address, record.nbytes) or bytes(record.nbytes)
    values = struct.unpack(f"<{len(record.words)}i", data)
    return {
        word.name: value if word.signed else value & 0xFFFF_FFFF
        for word, value in zip(record, values, strict=True)
    }


def memory_at(machine: Machine, core: int, address: int, count: int) -> bytes | None:
    """Bytes as a core sees them; None if they are not all in one memory."""
    shared = machine.shared[0]
    spm = machine.scratchpad[core][: int(shared.scratchpad_bytes)]
    for piece, base in (
        (machine.image, int(shared.image_base)),
        (machine.ram, int(shared.ram_base)),
        (spm, SCRATCHPAD_BASE),
        (machine.control, CONTROL_BASE),
    ):
        if base <= address <= base + piece.size - count:
            return bytes(piece[address - base : address - base + count])
    return None


def touches_of(
    instruction: Instruction, words: Mapping[str, int], word: int, rs1: int
) -> tuple[Touch, ...]:
    """Which memory an instruction reads and writes."""
    name = instruction.descriptor
    if name is not None:
        return tuple(t for t in _TOUCHES[name](words) if not t.box.is_empty)
    nbytes = SCALAR_BYTES.get(instruction.mnemonic)
    if nbytes is None:
        return ()
    is_store = instruction.format is Format.S
    immediate = (word >> 25) << 5 | (word >> 7) & 31 if is_store else word >> 20
    address = (rs1 + immediate - ((immediate & 0x800) << 1)) & 0xFFFF_FFFF
    if address < SCRATCHPAD_BASE:
        return ()
    space: Space = "dram" if address >= DRAM_BASE else "scratchpad"
    return (Touch("write" if is_store else "read", "word", Box(space, address, nbytes)),)


Words = Mapping[str, int]


def _spm(start: int, run: int, *repeats: tuple[int, int]) -> Box:
    return Box("scratchpad", start, run, repeats)


def _dram_side(d: Words) -> Box:
    repeats = ((d["count_y"], d["dram_stride_y"]), (d["count_x"], d["dram_stride_x"]))
    return Box("dram", d["dram"], d["run_bytes"], repeats)


def _load(d: Words) -> tuple[Touch, ...]:
    wide = d["pad_x_before"] + d["count_x"] + d["pad_x_after"]
    high = d["pad_y_before"] + d["count_y"] + d["pad_y_after"]
    box = _spm(d["spm"], d["run_bytes"], (high, d["spm_stride_y"]), (wide, d["spm_stride_x"]))
    return Touch("read", "dram", _dram_side(d)), Touch("write", "spm", box)


def _store(d: Words) -> tuple[Touch, ...]:
    repeats = ((d["count_y"], d["spm_stride_y"]), (d["count_x"], d["spm_stride_x"]))
    box = _spm(d["spm"], d["run_bytes"], *repeats)
    return Touch("read", "spm", box), Touch("write", "dram", _dram_side(d))


def _image(d: Words, pixel: int) -> Box:
    rows = (d["out_h"] - 1) * d["stride_h"] + (d["kernel_h"] - 1) * d["dilation_h"] + 1
    columns = (d["out_w"] - 1) * d["stride_w"] + (d["kernel_w"] - 1) * d["dilation_w"] + 1
    repeats = ((rows, d["in_row_stride"]), (columns, d["in_pixel_stride"]))
    return _spm(d["input"], pixel, *repeats)


def _result(d: Words, pixel: int) -> Touch:
    repeats = ((d["out_h"], d["out_row_stride"]), (d["out_w"], d["out_pixel_stride"]))
    return Touch("write", "output", _spm(d["output"], pixel, *repeats))


def _tables(d: Words, channels: int) -> tuple[Touch, ...]:
    records = Touch("read", "channels", _spm(d["channels"], channels * CHANNEL_RECORD.nbytes))
    if not d["scales"]:
        return (records,)
    return records, Touch("read", "scales", _spm(d["scales"], channels * SCALE_RECORD.nbytes))


def _sums(d: Words, count: int) -> tuple[Touch, ...]:
    """Running sums: read unless it is the first part, written unless it is the last one."""
    box = _spm(d["partial"], count * (4 << d["element"]))
    reads = (Touch("read", "partial", box),) if d["part"] in (2, 3) else ()
    return (*reads, Touch("write", "partial", box)) if d["part"] in (1, 2) else reads


def _conv(d: Words) -> tuple[Touch, ...]:
    channels, element = d["out_channels"], d["element"]
    block = 4 >> element
    row_blocks = -(-d["kernel_w"] * d["in_channels"] // block)
    weights = -(-channels // 16) * d["kernel_h"] * 64 * row_blocks
    result = () if d["part"] in (1, 2) else (_result(d, channels << element),)
    return (
        Touch("read", "input", _image(d, d["groups"] * d["in_channels"] << element)),
        Touch("read", "weights", _spm(d["weights"], weights)),
        *_tables(d, channels),
        *_sums(d, d["out_h"] * d["out_w"] * channels),
        *result,
    )


def _dwconv(d: Words) -> tuple[Touch, ...]:
    pixel = d["channels_count"] << d["element"]
    return (
        Touch("read", "input", _image(d, pixel)),
        Touch("read", "weights", _spm(d["weights"], d["kernel_h"] * d["kernel_w"] * pixel)),
        *_tables(d, d["channels_count"]),
        _result(d, pixel),
    )


def _matrix(d: Words, name: str, rows: int, columns: int) -> Box:
    return _spm(d[name], columns << d["element"], (rows, d[f"{name[:3]}_stride"]))


def _gemm(d: Words) -> tuple[Touch, ...]:
    result = Touch("write", "output", _matrix(d, "output", d["rows"], d["columns"]))
    return (
        Touch("read", "lhs", _matrix(d, "lhs", d["rows"], d["inner"])),
        Touch("read", "rhs", _matrix(d, "rhs", d["inner"], d["columns"])),
        *_sums(d, d["rows"] * d["columns"]),
        *(() if d["part"] in (1, 2) else (result,)),
    )


def _pool(d: Words) -> tuple[Touch, ...]:
    pixel = d["channels"] << d["element"]
    repeats = ((d["in_h"], d["in_row_stride"]), (d["in_w"], d["in_pixel_stride"]))
    return Touch("read", "input", _spm(d["input"], pixel, *repeats)), _result(d, pixel)


def _eltwise(d: Words) -> tuple[Touch, ...]:
    rhs = d["columns"] * (4 if d["rhs_kind"] else 1 << d["element"])
    rows = 1 if d["rhs_stride"] == 0 else d["rows"]
    return (
        Touch("read", "lhs", _matrix(d, "lhs", d["rows"], d["columns"])),
        Touch("read", "rhs", _spm(d["rhs"], rhs, (rows, d["rhs_stride"]))),
        Touch("write", "output", _matrix(d, "output", d["rows"], d["columns"])),
    )


def _flat(d: Words) -> tuple[Touch, ...]:
    nbytes = d["count"] << d.get("element", 0)
    reads = [Touch("read", "input", _spm(d["input"], nbytes))] if "input" in d else []
    if "table" in d:
        reads.append(Touch("read", "table", _spm(d["table"], 256)))
    return *reads, Touch("write", "output", _spm(d["output"], nbytes))


def _transpose(d: Words) -> tuple[Touch, ...]:
    sides = []
    for kind, name in (("read", "in"), ("write", "out")):
        repeats = [(d[f"size_{i}"], d[f"{name}_stride_{i}"]) for i in range(4)]
        box = _spm(d[f"{name}put"], d["element_bytes"], *repeats)
        sides.append(Touch("read" if kind == "read" else "write", f"{name}put", box))
    return tuple(sides)


_TOUCHES = {
    "load": _load,
    "store": _store,
    "conv": _conv,
    "dwconv": _dwconv,
    "gemm": _gemm,
    "maxpool": _pool,
    "avgpool": _pool,
    "eltwise": _eltwise,
    "rescale": _flat,
    "lut": _flat,
    "fill": _flat,
    "transpose": _transpose,
}
"""Descriptor -> the memory that its instruction touches."""
