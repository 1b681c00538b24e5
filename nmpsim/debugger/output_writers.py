"""Search for the instructions that wrote a layer's output, and for misplaced writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.byte_runs import ByteRuns, get_tensor_region
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.error_patterns import ErrorPattern
from nmpsim.debugger.error_regions import ElementOwners, Mask, describe_extent
from nmpsim.debugger.execution import UNLIMITED
from nmpsim.debugger.inspect import unravel_index
from nmpsim.debugger.instructions import ExecutedInstruction, MemoryAccess, list_host_accesses
from nmpsim.debugger.tracing import find_last_writer, trace_layer
from nmpsim.lir.nodes import ELEM_DTYPES

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class OutputWriters:
    """Writers of a layer's output: instructions, and first and last writer of each element."""

    stores: tuple[ExecutedInstruction, ...]
    """Instructions that wrote the output, in order."""
    first: Labels
    """[output's shape] number of the first instruction that wrote each element; -1 for none."""
    last: Labels
    """Number of the last instruction that wrote each element."""

    @property
    def misplaced_mask(self) -> Mask:
        """Mask of the elements that no instruction or several instructions wrote."""
        return np.asarray((self.last < 0) | (self.first != self.last))

    def list_owners(self) -> tuple[ElementOwners, ...]:
        """Return the owners of the output's elements, as cores and as stores."""
        cores = [done.core for done in self.stores]
        by_core = np.where(self.last < 0, -1, np.array([*cores, -1], np.int64)[self.last])
        some = max(cores, default=-1) + 1
        first = {done.core: done.code_command for done in reversed(self.stores)}
        places = [first.get(core, "") for core in range(some)]
        return (
            ElementOwners("core", by_core, [f"core {core}" for core in range(some)], places),
            ElementOwners("store", self.last, [describe_store(one) for one in self.stores],
                   [one.code_command for one in self.stores]),
        )  # fmt: skip


def describe_store(store: ExecutedInstruction) -> str:
    """Describe an executed store by its address, core and position."""
    return (
        f"{store.instruction.mnemonic} at {store.pc:#x} of core {store.core}"
        f" (position {store.next_position})"
    )


def find_output_writers(layer: Layer, trace: Sequence[ExecutedInstruction]) -> OutputWriters:
    """Find the instructions in the trace of a layer that wrote its output."""
    whole = get_tensor_region(layer.output)
    first, last = (np.full(whole.run, -1, np.int64) for _ in range(2))
    stores: list[ExecutedInstruction] = []
    for done in trace:
        for region in _written(done):
            if not region.overlaps(whole):
                continue
            places = region.list_offsets(whole.start, whole.run)
            first[places] = np.where(first[places] < 0, len(stores), first[places])
            last[places] = len(stores)
            stores.append(done)
    shape = (*layer.output.shape, ELEM_DTYPES[layer.output.elem].itemsize)
    firsts, lasts = (one.reshape(shape)[..., 0] for one in (first, last))
    return OutputWriters(tuple(stores), firsts, lasts)


def _written(done: ExecutedInstruction) -> Iterator[ByteRuns]:
    return (t.region for t in done.accesses if t.kind == "write" and t.region.space == "dram")


def find_misplaced_writes(
    layer: Layer, trace: Sequence[ExecutedInstruction], writers: OutputWriters, wrong: Mask
) -> Iterator[ErrorPattern]:
    """Yield error patterns for wrong elements that no store, or more than one store, wrote."""
    missing = wrong & (writers.last < 0)
    if missing.any():
        yield _describe_missing(layer, trace, writers, missing)
    twice = writers.first != writers.last
    spoiled = twice & wrong
    if np.count_nonzero(spoiled) > np.count_nonzero(twice & ~wrong):
        last, count = np.unique(writers.last[spoiled], return_counts=True)
        culprit = writers.stores[last[count.argmax()]]
        place = describe_extent(spoiled)
        text = (
            f"{np.count_nonzero(spoiled)} wrong elements{f' ({place})' if place else ''} were"
            " written"
            f" twice, last by {describe_store(culprit)}"
        )
        yield ErrorPattern(text, (culprit.code_command,))


def _describe_missing(
    layer: Layer, trace: Sequence[ExecutedInstruction], known: OutputWriters, missing: Mask
) -> ErrorPattern:
    flat = missing.reshape(-1)
    makers = {
        done.core
        for done in trace
        if done.layer == layer.index
        and "event_origin" in done.words
        and done.words["event_origin"] < flat.size
        and flat[done.words["event_origin"]]
    }
    working = {done.core for done in trace if done.layer == layer.index and done.unit is not None}
    idle = working - {done.core for done in known.stores}
    cores, place = sorted(makers or idle), describe_extent(missing)
    text = (
        f"{np.count_nonzero(missing)} wrong elements{f' ({place})' if place else ''} were"
        " not written"
    )
    if cores:
        does = "computes these elements" if makers else "has not stored any result"
        text += f"; core {', '.join(map(str, cores))} {does}"
    away = next(
        (one for one in _find_outside_stores(layer, trace) if one.core in cores or not cores), None
    )
    if away is not None:
        text += f"; {describe_store(away)} writes outside of {layer.output.name}"
    if away is None:
        text += _describe_overlap(known)
    return ErrorPattern(text, ("layer L",) if away is None else (away.code_command,))


def _describe_overlap(known: OutputWriters) -> str:
    """Describe two instructions that write the same elements."""
    twice = known.first != known.last
    if not twice.any():
        return ""
    first, last = (known.stores[int(side[twice][0])] for side in (known.first, known.last))
    return f"; {describe_store(first)} and {describe_store(last)} write the same elements"


def _find_outside_stores(
    layer: Layer, trace: Sequence[ExecutedInstruction]
) -> Iterator[ExecutedInstruction]:
    """Yield stores of a layer that write outside of its output."""
    output = get_tensor_region(layer.output)
    for done in trace:
        if done.layer == layer.index:
            for region in _written(done):
                if not output.start <= region.start <= region.end <= output.end:
                    yield done


# --- overwritten inputs --------------------------------------------------------------------------


def find_overwritten_inputs(debugger: Debugger, index: int) -> Iterator[ErrorPattern]:
    """Yield an error pattern for each operand that was overwritten before the layer read it."""
    layer = debugger.layers[index]
    before = debugger.list_layers_before(index)
    if layer.placement == "host":
        accesses: Sequence[MemoryAccess] = list_host_accesses(debugger.find_step(index))
    else:
        trace = trace_layer(debugger, index)
        accesses = [access for done in trace for access in done.accesses]
        yield from _find_own_overwrite(layer, trace)
    read = [access.region for access in accesses if access.kind == "read"]
    yield from _find_spoiled(debugger, before, read, debugger.get_layer_start(index), layer.name)


def find_overwritten_results(debugger: Debugger) -> Iterator[ErrorPattern]:
    """Yield an error pattern for each program output that was overwritten before the end.

    All layers must have run.
    """
    results = [get_tensor_region(tensor) for tensor in debugger.bundle.metadata.outputs]
    yield from _find_spoiled(debugger, debugger.get_layer_order(), results, UNLIMITED, "the host")


def _find_own_overwrite(
    layer: Layer, trace: Sequence[ExecutedInstruction]
) -> Iterator[ErrorPattern]:
    """Yield a store of the layer itself that overwrites what the layer reads later."""
    for store in _find_outside_stores(layer, trace):
        for region in _written(store):
            for done in trace:
                reads = (t.region for t in done.accesses if t.kind == "read")
                if done.next_position > store.next_position and any(
                    region.overlaps(one) for one in reads
                ):
                    text = f"{describe_store(store)} overwrites data that the layer reads later"
                    yield ErrorPattern(text, (store.code_command,))
                    return


def _find_spoiled(
    debugger: Debugger,
    done: Sequence[int],
    read: Sequence[ByteRuns],
    position: int,
    reader: str,
) -> Iterator[ErrorPattern]:
    """Yield a tensor that is read and differs from what its layer wrote.

    A byte belongs to the last layer done there.
    """
    with debugger.visit_position(position):
        now: Bytes = debugger.machine.ram.view(np.uint8).copy()
        outputs = debugger.layer_outputs
    tensors = [(one, debugger.inputs[one.name], -1) for one in debugger.bundle.metadata.inputs]
    tensors += [(debugger.layers[one].output, outputs[one], one) for one in done]
    base = debugger.bundle.rw_base
    owner, kept = np.full(now.size, -1, np.int32), now.copy()
    for number, (tensor, values, _) in enumerate(tensors):
        start = tensor.address - base
        if 0 <= start <= now.size - values.nbytes:
            owner[start : start + values.nbytes] = number
            kept[start : start + values.nbytes] = np.frombuffer(values.tobytes(), np.uint8)
    spoiled = np.flatnonzero(_is_read(debugger, read, now.size) & (kept != now) & (owner >= 0))
    if spoiled.size == 0:
        return
    number, address = int(owner[spoiled[0]]), int(spoiled[0]) + base
    tensor, values, index = tensors[number]
    count = int(np.count_nonzero(owner[spoiled] == number))
    place = list(unravel_index((address - tensor.address) // values.itemsize, tensor.shape))
    later = done[done.index(index) + 1 :] if index >= 0 else done
    text = (
        f"{count} bytes of {tensor.name}, starting at element {place}, were overwritten before"
        f" {reader}"
        f" read them{_describe_writer(debugger, later, address)}"
    )
    yield ErrorPattern(text, (f"watch {tensor.name}",))


def _is_read(debugger: Debugger, read: Sequence[ByteRuns], size: int) -> Mask:
    """Return the bytes of writable DRAM that are read, without those that edits have set."""
    is_read, base = np.zeros(size, np.bool_), debugger.bundle.rw_base
    for region in read:
        if region.space == "dram":
            is_read[region.list_offsets(base, size)] = True
    for edit in debugger.edits:
        for address, data in edit.pieces:
            is_read[max(address - base, 0) : max(address - base + len(data), 0)] = False
    return is_read


def _describe_writer(debugger: Debugger, later: Sequence[int], address: int) -> str:
    """Return which later layer wrote a byte last."""
    for index in reversed(later):
        layer = debugger.layers[index]
        if layer.placement == "host":
            accesses = list_host_accesses(debugger.find_step(index))
            if any(one.kind == "write" and one.region.contains(address) for one in accesses):
                return f", last by the host in {layer.display_name}"
            continue
        done = find_last_writer(trace_layer(debugger, index), "dram", address)
        if done is not None:
            return f", last by {describe_store(done)} in {layer.display_name}"
    return ""
