"""Read the instructions of a bundle's cores, and check that their waits order all accesses.

A unit works through its queue in order, and beside the other units; ``nmp.wait`` leaves at most
so many of a unit's instructions unfinished. Two unfinished instructions of different units must
not touch the same scratchpad bytes, unless both only read them. Within a layer, which ends at a
barrier, cores run in any order: what one of them stores no other may load or store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.isa.codec import DecodedInstruction, decode, decode_descriptor
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE, Unit

Words = Mapping[str, int]
MAX_STEPS = 1 << 22
CHANNEL_RECORD_BYTES, SCALE_RECORD_BYTES = 16, 28
FIRST, MIDDLE, LAST = 1, 2, 3


@attrs.frozen
class Range:
    """Range of scratchpad bytes, without its end."""

    begin: int
    end: int

    def meets(self, other: Range) -> bool:
        return self.begin < other.end and other.begin < self.end


@attrs.frozen
class Job:
    """Tensor instruction and the scratchpad bytes that it touches."""

    unit: Unit
    mnemonic: str
    words: Words
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


Event = Job | tuple[str, int, int]
"""A job, or ("wait", unit, count), ("barrier", number, cores), ("halt", 0, 0)."""


# Reading the code


def core_steps(
    bundle: Bundle, entry: int, core: int
) -> Iterator[tuple[int, DecodedInstruction, Sequence[int]]]:
    """Yield the address, instruction and prior registers of each step of a core until it halts.

    The scalar part is straight-line code.
    """
    registers = [0] * 32
    pc = entry
    for _ in range(MAX_STEPS):
        word = int.from_bytes(_bytes(bundle, pc, 4), "little")
        one = decode(word)
        assert one is not None, hex(pc)
        yield pc, one, registers
        name, operands = one.instruction.mnemonic, one.operands
        pc += 4
        if name == "nmp.halt":
            return
        if name == "jalr":
            assert operands["rd"] == 0
            pc = registers[operands["rs1"]] + operands["imm"] & 0xFFFF_FFFF
        elif not name.startswith("nmp."):
            registers[operands["rd"]] = _scalar(name, operands, registers, core)
            registers[0] = 0
    raise AssertionError("the code does not end")


def core_events(bundle: Bundle, entry: int, core: int) -> Iterator[Event]:
    """Yield the instructions of a core from ``entry`` to its halt, without the scalar ones."""
    for _, one, registers in core_steps(bundle, entry, core):
        name, operands = one.instruction.mnemonic, one.operands
        if one.instruction.descriptor:
            yield _job(bundle, one, registers[operands["rs1"]])
        elif name == "nmp.wait":
            yield "wait", operands["unit"], operands["outstanding"]
        elif name == "nmp.barrier":
            yield "barrier", registers[operands["rs1"]], registers[operands["rs2"]]
        elif name == "nmp.halt":
            yield "halt", 0, 0


def _scalar(name: str, operands: Words, registers: Sequence[int], core: int) -> int:
    if name == "csrrs":
        assert operands["csr"] == 0xF14
        return core
    if name == "lui":
        return operands["imm"] & 0xFFFF_FFFF
    left = registers[operands["rs1"]]
    if name == "addi":
        return left + operands["imm"] & 0xFFFF_FFFF
    if name == "slli":
        return left << operands["shamt"] & 0xFFFF_FFFF
    assert name == "add", name
    return left + registers[operands["rs2"]] & 0xFFFF_FFFF


def _bytes(bundle: Bundle, address: int, count: int) -> bytes:
    start = address - bundle.image_base
    return bundle.image[start : start + count].tobytes()


def _job(bundle: Bundle, one: DecodedInstruction, address: int) -> Job:
    kind = str(one.instruction.descriptor)
    words = decode_descriptor(kind, _bytes(bundle, address, DESCRIPTORS[kind].nbytes))
    reads, writes = TOUCHES[kind](words)
    assert one.instruction.unit is not None
    return Job(one.instruction.unit, one.instruction.mnemonic, words, reads, writes)


# What an instruction touches; from the descriptors' documentation

Touched = tuple[tuple[Range, ...], tuple[Range, ...]]


def _at(address: int, nbytes: int) -> Range:
    begin = address - SCRATCHPAD_BASE
    return Range(begin, begin + nbytes)


def _grid(address: int, rows: int, row: int, columns: int, column: int, run: int) -> Range:
    empty = rows <= 0 or columns <= 0
    return _at(address, 0 if empty else (rows - 1) * row + (columns - 1) * column + run)


def _load(w: Words) -> Touched:
    columns = w["pad_x_before"] + w["count_x"] + w["pad_x_after"]
    rows = w["pad_y_before"] + w["count_y"] + w["pad_y_after"]
    strides = w["spm_stride_y"], columns, w["spm_stride_x"], w["run_bytes"]
    return (), (_grid(w["spm"], rows, *strides),)


def _store(w: Words) -> Touched:
    strides = w["spm_stride_y"], w["count_x"], w["spm_stride_x"], w["run_bytes"]
    return (_grid(w["spm"], w["count_y"], *strides),), ()


def _element_bytes(w: Words) -> int:
    """Return the number of bytes of an element."""
    return 1 << w["element"]


def _image_out(w: Words, channels: int) -> Range:
    strides = w["out_row_stride"], w["out_w"], w["out_pixel_stride"], channels * _element_bytes(w)
    return _grid(w["output"], w["out_h"], *strides)


def _padded_input(w: Words, channels: int) -> Range:
    rows, columns = (
        (w[f"out_{d}"] - 1) * w[f"stride_{d}"] + (w[f"kernel_{d}"] - 1) * w[f"dilation_{d}"] + 1
        for d in ("h", "w")
    )
    run = channels * _element_bytes(w)
    return _grid(w["input"], rows, w["in_row_stride"], columns, w["in_pixel_stride"], run)


def _tables(w: Words, channels: int) -> tuple[Range, ...]:
    tables = (_at(w["channels"], CHANNEL_RECORD_BYTES * channels),)
    if not w["scales"]:
        return tables
    return (*tables, _at(w["scales"], SCALE_RECORD_BYTES * channels))


def _conv(w: Words) -> Touched:
    channels = w["out_channels"]
    row_bytes = w["kernel_w"] * w["in_channels"] * _element_bytes(w)
    blocks, quads = -(-channels // 16), -(-row_bytes // 4)
    weights = _at(w["weights"], blocks * w["kernel_h"] * quads * 64)
    sums = _at(w["partial"], 4 * _element_bytes(w) * w["out_h"] * w["out_w"] * channels)
    image = _padded_input(w, w["groups"] * w["in_channels"])
    return _touch_sums(w, (image, weights, *_tables(w, channels)), sums, _image_out(w, channels))


def _touch_sums(w: Words, reads: tuple[Range, ...], sums: Range, out: Range) -> Touched:
    """Return what is touched, reading sums unless they begin and writing them unless they end."""
    if w["part"] in (MIDDLE, LAST):
        reads = (*reads, sums)
    return reads, (sums,) if w["part"] in (FIRST, MIDDLE) else (out,)


def _dwconv(w: Words) -> Touched:
    channels = w["channels_count"]
    weights = _at(w["weights"], w["kernel_h"] * w["kernel_w"] * channels * _element_bytes(w))
    reads = (_padded_input(w, channels), weights, *_tables(w, channels))
    return reads, (_image_out(w, channels),)


def _gemm(w: Words) -> Touched:
    rows, inner, columns, wide = w["rows"], w["inner"], w["columns"], _element_bytes(w)
    left = _grid(w["lhs"], rows, w["lhs_stride"], 1, 0, inner * wide)
    right = _grid(w["rhs"], inner, w["rhs_stride"], 1, 0, columns * wide)
    out = _grid(w["output"], rows, w["out_stride"], 1, 0, columns * wide)
    return _touch_sums(w, (left, right), _at(w["partial"], 4 * wide * rows * columns), out)


def _pool(w: Words) -> Touched:
    strides = w["in_row_stride"], w["in_w"], w["in_pixel_stride"], w["channels"] * _element_bytes(w)
    return (_grid(w["input"], w["in_h"], *strides),), (_image_out(w, w["channels"]),)


def _eltwise(w: Words) -> Touched:
    rows, columns, run = w["rows"], w["columns"], w["columns"] * _element_bytes(w)
    left = _grid(w["lhs"], rows, w["lhs_stride"], 1, 0, run)
    width = 4 * columns if w["rhs_kind"] else run
    right = _grid(w["rhs"], rows, w["rhs_stride"], 1, 0, width)
    return (left, right), (_grid(w["output"], rows, w["out_stride"], 1, 0, run),)


def _flat(w: Words) -> Touched:
    nbytes = w["count"] << w.get("element", 0)
    reads = (_at(w["input"], nbytes),) if "input" in w else ()
    if "table" in w:
        reads = (*reads, _at(w["table"], 256))
    return reads, (_at(w["output"], nbytes),)


def _transpose(w: Words) -> Touched:
    sides = []
    for side, stride in (("input", "in_stride"), ("output", "out_stride")):
        far = sum((w[f"size_{d}"] - 1) * w[f"{stride}_{d}"] for d in range(4))
        sides.append(_at(w[side], far + w["element_bytes"]))
    return (sides[0],), (sides[1],)


TOUCHES = {
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


# Waits of one core


class CoreChecker:
    """Checker of a core that tracks unfinished jobs of its units and written scratchpad bytes."""

    def __init__(self, nbytes: int) -> None:
        self._unfinished: dict[Unit, list[Job]] = {unit: [] for unit in Unit}
        self._written = np.zeros(nbytes, np.bool_)

    def wait(self, unit: Unit, count: int) -> None:
        queue = self._unfinished[unit]
        del queue[: max(len(queue) - count, 0)]

    def issue(self, job: Job) -> None:
        for unit, queue in self._unfinished.items():
            if unit != job.unit:
                for other in queue:
                    self._check_pair(other, job)
        for part in job.reads:
            assert 0 <= part.begin <= part.end <= self._written.size, job
            assert self._written[part.begin : part.end].all(), f"reads what nobody wrote: {job}"
        for part in job.writes:
            assert 0 <= part.begin <= part.end <= self._written.size, job
            self._written[part.begin : part.end] = True
        self._unfinished[job.unit].append(job)

    def _check_pair(self, other: Job, job: Job) -> None:
        for write in job.writes:
            for touched in (*other.reads, *other.writes):
                assert not write.meets(touched), f"{job} writes what is in use by {other}"
        for read in job.reads:
            for write in other.writes:
                assert not read.meets(write), f"{job} reads what is not there yet: {other}"

    def check_idle(self) -> None:
        for queue in self._unfinished.values():
            assert not queue, f"unfinished at the end of a layer: {queue[0]}"


# Layers: what cores do to DRAM beside each other


@attrs.frozen
class Transfer:
    """Load or store of one core in a layer, which touches bytes of DRAM."""

    core: int
    is_store: bool
    words: Words

    def places(self, base: int, nbytes: int) -> np.ndarray[Any, Any]:
        """Return the offsets of the touched bytes in read-write memory, if they are there."""
        w = self.words
        if not base <= w["dram"] < base + nbytes:
            return np.zeros(0, np.int64)
        rows = np.arange(w["count_y"])[:, None, None] * w["dram_stride_y"]
        runs = np.arange(w["count_x"])[None, :, None] * w["dram_stride_x"]
        return (w["dram"] - base + rows + runs + np.arange(w["run_bytes"])).reshape(-1)


def check_layer(bundle: Bundle, transfers: list[Transfer]) -> None:
    """Assert that no byte is stored twice, or loaded after its store or beside another core's."""
    stored_by = np.full(bundle.rw_bytes, -1, np.int16)
    memory = bundle.rw_base, bundle.rw_bytes
    for transfer in transfers:
        places = transfer.places(*memory)
        if transfer.is_store:
            assert (stored_by[places] == -1).all(), f"stored twice in a layer: {transfer}"
            stored_by[places] = transfer.core
        else:
            assert (stored_by[places] == -1).all(), f"loaded behind a store: {transfer}"
    for transfer in transfers:
        if not transfer.is_store:
            writers = stored_by[transfer.places(*memory)]
            foreign = (writers != -1) & (writers != transfer.core)
            assert not foreign.any(), f"another core stores what this loads: {transfer}"


def check_streams(bundle: Bundle, config: DeviceConfig) -> int:
    """Check all instruction streams of a bundle and return the number of tensor instructions."""
    checkers = [CoreChecker(config.scratchpad_bytes) for _ in range(config.cores_count)]
    jobs = 0
    for step in bundle.metadata.steps:
        if step.kind == "device":
            assert step.entry is not None
            layers: dict[int, list[Transfer]] = {index: [] for index in step.layers}
            for core, checker in enumerate(checkers):
                events = list(core_events(bundle, step.entry, core))
                jobs += sum(isinstance(event, Job) for event in events)
                _check_core(events, core, checker, config, layers)
            for transfers in layers.values():
                check_layer(bundle, transfers)
    return jobs


def _check_core(
    events: list[Event],
    core: int,
    checker: CoreChecker,
    config: DeviceConfig,
    layers: dict[int, list[Transfer]],
) -> None:
    """Check that a core runs the layers of a step in order and ends each with its barrier."""
    open_layers = list(layers)
    for event in events:
        if isinstance(event, Job):
            assert event.words["layer"] == open_layers[0]
            checker.issue(event)
            if event.unit in (Unit.LOAD, Unit.STORE):
                is_store = event.unit == Unit.STORE
                layers[open_layers[0]].append(Transfer(core, is_store, event.words))
        elif event[0] == "wait":
            checker.wait(Unit(event[1]), event[2])
        elif event[0] == "barrier":
            assert event[1:] == (open_layers.pop(0), config.cores_count)
            checker.check_idle()
    assert not open_layers
    assert events[-1] == ("halt", 0, 0)
