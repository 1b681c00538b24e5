"""Cycles by layer during a run, including host operations, and the run's report.

docs/timing.md has the formula for the cycles of a host layer.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import (
    UNSIGNED_ELEMS,
    Layer,
    Metadata,
    ProgramStep,
    Tensor,
    list_chains,
)
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.console import (
    count_dropped_characters,
    get_exit_status,
    read_console,
)
from nmpsim.core.counters import (
    Counters,
    LayerReports,
    compute_layer_bound,
    count_host_clipping,
)
from nmpsim.core.critical_path import CriticalPath, PathSection
from nmpsim.core.host_steps import HostClipping, read_tensor
from nmpsim.core.memory_demand import count_tensor_bytes
from nmpsim.core.state import NEVER, CountColumn, Machine
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind
from nmpsim.lir.opcodes import OPCODES
from nmpsim.report.data import ChainReport, OutputReport, RunReport
from nmpsim.report.savings import Savings
from nmpsim.report.termination import ContractReport, TrapReport

_SUMS = {
    OpcodeKind.CONVOLUTION,
    OpcodeKind.FULLY_CONNECTED,
    OpcodeKind.PRODUCT,
    OpcodeKind.AVERAGE_POOL,
    OpcodeKind.FUNCTION,
}
_FUNCTIONS = {
    *("softmax", "logsoftmax", "softplus", "hardswish", "elementpow", "elementrsqrt"),
    *("elementsin", "elementcos", "elementasin", "elementacos", "elementatan"),
    *("elementerf", "elementexp", "elementlog", "resizebilinear", "localresponsenormalization"),
    *("batchnormalization", "layernormalization", "batchedreduceadd", "batchedreduceprod"),
    *("cumsum", "batchmatmul", "adaptiveavgpool", "convolution3d", "convtranspose"),
}
"""Host operations that sum several terms or that libraries approximate. All others round each
result once, as IEEE 754 requires."""


def find_float_quantizing_layers(metadata: Metadata) -> tuple[Layer, ...]:
    """Return layers that quantize float32 values whose rounding depends on the host implementation.

    A reference that adds in another order, or approximates a function otherwise, may differ there
    by one step.
    """
    uncertain: set[str] = set()
    found = []
    for step in metadata.steps:
        if step.opcode is None:
            continue
        read = {one.tensor.name for one in step.operands if one.role != "out"}
        written = [one.tensor for one in step.operands if one.role != "in"]
        depends = not uncertain.isdisjoint(read)
        opcode = OPCODES.get(step.opcode)  # None for an invalid bundle
        is_rounded = step.opcode in _FUNCTIONS or (opcode is not None and opcode.kind in _SUMS)
        if any(tensor.elem == "float" for tensor in written):
            if depends or is_rounded:
                uncertain.update(tensor.name for tensor in written)
        elif depends and any(tensor.scale is not None for tensor in written):
            found += [metadata.layers[index] for index in step.layers]
    return tuple(found)


_SIMPLE = frozenset(
    {
        OpcodeKind.NO_WORK,
        OpcodeKind.BATCHED_ADD,
        OpcodeKind.PAIR,
        OpcodeKind.CLIP,
        OpcodeKind.RESCALE,
        OpcodeKind.LOOK_UP,
        OpcodeKind.FILL,
        OpcodeKind.MOVE,
        OpcodeKind.CONVERSION,
    }
)
"""Kinds with one short operation for each result."""


def compute_host_cycles(step: ProgramStep, config: DeviceConfig) -> int:
    """Return the cycles of a host step, or 0 if the device file sets no cycles for the host."""
    opcode = OPCODES.get(step.opcode or "")
    kind = OpcodeKind.HOST if opcode is None else opcode.kind
    shapes = [operand.tensor.shape for operand in step.operands]
    results = math.prod(shapes[0])
    if kind in WEIGHTED:
        weights_of_a_channel = math.prod(shapes[2]) // max(shapes[0][-1], 1)
        taken = results * weights_of_a_channel * config.host_kilo_mac_cycles
    elif kind is OpcodeKind.PRODUCT:
        taken = results * shapes[1][-1] * config.host_kilo_mac_cycles
    elif kind in _SIMPLE:
        taken = results * config.host_kilo_element_cycles
    else:
        taken = results * config.host_kilo_function_cycles
    return config.host_operation_cycles + -(-taken // 1000)


_NAMED = 3
"""Number of layers that a note names."""


@attrs.define
class RunCycles:
    """Cycles, critical path and clipped host results of each layer, collected during a run."""

    cycles: dict[int, int]
    clips: dict[int, HostClipping]
    paths: dict[int, PathSection]
    """Critical path of each layer, where it is known."""
    last_cycle: int = 0
    """Cycle up to which cycles are attributed."""

    @classmethod
    def from_layers(cls, layers: Sequence[Layer]) -> RunCycles:
        """Return a ``RunCycles`` with 0 cycles for each layer."""
        return cls(dict.fromkeys(range(len(layers)), 0), {}, {})

    def copy(self) -> RunCycles:
        """Return a copy that shares no dictionary with this object."""
        return RunCycles(dict(self.cycles), dict(self.clips), dict(self.paths), self.last_cycle)


def record_device_step(
    account: RunCycles,
    machine: Machine,
    layers: Sequence[Layer],
    step: ProgramStep,
    is_complete: bool,
    path: CriticalPath | None = None,
) -> None:
    """Record the cycles of a device step's layers in ``account``, and their critical path if given.

    A layer lasts from the end of the one before to its barrier. Cycles after the last passed
    barrier belong to the next layer, or to the last one.
    """
    end = int(machine.cores.clock.max())
    released: list[int] = machine.barriers.cycle.tolist()
    for index in step.layers:
        barrier = layers[index].barrier
        cycle = NEVER if barrier is None else released[barrier]
        is_last = is_complete and index == step.layers[-1]
        until = end if cycle == NEVER or is_last else cycle
        account.cycles[index] = until - account.last_cycle
        if path is not None:
            account.paths[index] = PathSection(path, account.last_cycle, until)
        account.last_cycle = until
        if is_last or (is_complete and cycle == NEVER):
            _give_unnamed_cycles(machine, index)
        if cycle == NEVER:
            break


def divide_chain_cycles(
    layers: Sequence[Layer], counted: Counters, account: RunCycles
) -> tuple[Mapping[int, int], Mapping[int, PathSection]]:
    """Divide the cycles of each chain among its layers, in proportion to their work.

    The work of a layer is its lower bound, or the cycles in which the DRAM served the layer if they
    are more.

    Returns
    -------
    cycles, paths : mapping
        Cycles and critical path of each layer by its index.
    """
    cycles, paths = dict(account.cycles), dict(account.paths)
    for chain in list_chains(layers):
        total = sum(cycles[layer.index] for layer in chain)
        served = [_count_served_cycles(layer, counted) for layer in chain]
        bounds = [compute_layer_bound(layer, counted).cycles for layer in chain]
        ends = _divide_by_work(total, list(map(max, bounds, served)), served)
        section = paths.get(chain[0].index)
        for layer, begin, end in zip(chain, [0, *ends], ends, strict=False):
            cycles[layer.index] = end - begin
            if section is not None and total:
                paths[layer.index] = section._replace(share=(begin, end))
    return cycles, paths


def _divide_by_work(total: int, work: Sequence[int], served: Sequence[int]) -> list[int]:
    """Return the ends of shares of ``total`` in proportion to ``work``.

    If a share were shorter than the time ``served`` by the DRAM, each layer gets this time, and the
    rest is divided in proportion to the rest of the work.
    """
    ends = [total * done // max(sum(work), 1) for done in itertools.accumulate(work)]
    shares = map(operator.sub, ends, [0, *ends])
    if any(map(operator.lt, shares, served)):
        rest, more = total - sum(served), list(map(operator.sub, work, served))
        ends = [
            min(total, before + max(rest, 0) * done // max(sum(more), 1))
            for before, done in zip(
                itertools.accumulate(served), itertools.accumulate(more), strict=True
            )
        ]
    return [*ends[:-1], total]


def _count_served_cycles(layer: Layer, counted: Counters) -> int:
    """Return the cycles in which each DRAM channel served a layer, at most."""
    counts = counted.counts[layer.index]
    dram = counts[CountColumn.BUSY_LOAD] + counts[CountColumn.BUSY_STORE]
    return -(-int(dram) // counted.config.dram_channels)


def record_host_step(
    account: RunCycles, step: ProgramStep, clip: HostClipping | None, config: DeviceConfig
) -> None:
    """Record the cycles of a host step's layers, and its clipped results, in ``account``."""
    for index in step.layers:
        account.cycles[index] = compute_host_cycles(step, config)
        if clip is not None:
            account.clips[index] = clip


def _give_unnamed_cycles(machine: Machine, layer: int) -> None:
    """Attribute the cycles of cores that named no layer of the bundle to ``layer``."""
    columns = [*range(CountColumn.IDLE + 1), CountColumn.INSTRUCTIONS]
    counts, spent = machine.layers.counts, machine.layers.spent
    counts[layer, columns] += counts[-1, columns]
    counts[-1, columns] = 0
    spent[layer] += spent[-1]
    spent[-1] = 0


def build_output_report(stored: npt.NDArray[Any], tensor: Tensor, outside: Tensor) -> OutputReport:
    """Build the report of an output tensor, with values in the element type of ``outside``."""
    values = stored.copy()
    if outside.elem != tensor.elem:
        values = (values.astype(np.int32) + UNSIGNED_ELEMS[tensor.elem][1]).astype(
            ELEM_DTYPES[outside.elem]
        )
    return OutputReport(tensor.name, outside.elem, outside.scale, outside.offset, values)


def build_run_report(
    bundle: Bundle,
    machine: Machine,
    counted: Counters,
    account: RunCycles,
    *,
    engine: str,
    host_seconds: float,
    trap: TrapReport | None,
    contract: ContractReport,
    layer_outputs: Mapping[str, npt.NDArray[Any]],
    savings_meter: Callable[[], Savings | None] | None = None,
) -> RunReport:
    """Build the report of a run from the machine, its counters and the cycles of each layer."""
    metadata, config = bundle.metadata, counted.config
    on_host = (layer.index for layer in metadata.layers if layer.placement == "host")
    cycles = int(machine.cores.clock.max()) + sum(account.cycles[index] for index in on_host)
    outputs = tuple(
        build_output_report(read_tensor(machine, t), t, metadata.user_tensor(t))
        for t in metadata.outputs
    )
    cycles_of_layers, paths = divide_chain_cycles(metadata.layers, counted, account)
    host = {index: count_host_clipping(clip) for index, clip in account.clips.items()}
    return RunReport(
        program=metadata.program,
        device=config.settings(),
        sources=config.sources,
        estimates=counted.estimates,
        engine=engine,
        numerics=metadata.numerics_label,
        outputs={o.name: o.values for o in outputs},
        output_reports=outputs,
        cycles=cycles,
        seconds=cycles / (config.cores_clock_mhz * 1e6),
        host_seconds=host_seconds,
        layers=LayerReports(
            metadata.layers,
            counted,
            cycles_of_layers,
            paths,
            counted.values,
            host,
        ),
        chains=tuple(
            _report_chain(chain, counted, cycles_of_layers)
            for chain in list_chains(metadata.layers)
        ),
        trap=trap,
        exit_status=_find_exit_status(bundle, machine, trap),
        console=read_console(machine),
        console_dropped=count_dropped_characters(machine),
        contract=contract,
        layer_outputs=layer_outputs,
        notes=_notes(metadata),
        savings_meter=savings_meter,
    )


def _report_chain(
    chain: Sequence[Layer], counted: Counters, cycles: Mapping[int, int]
) -> ChainReport:
    executed = [int(counted.counts[layer.index][CountColumn.MACS]) for layer in chain]
    return ChainReport(
        chain[0].index,
        chain[-1].index,
        sum(cycles[layer.index] for layer in chain),
        sum(count_tensor_bytes(layer.output) for layer in chain if layer.in_scratchpads),
        sum(max(0, done - layer.macs) for done, layer in zip(executed, chain, strict=True)),
    )


def _find_exit_status(bundle: Bundle, machine: Machine, trap: TrapReport | None) -> int | None:
    """Return the exit status of a run, 0 for an ELF program whose cores have halted, or None."""
    status = get_exit_status(machine)
    return 0 if status is None and trap is None and not bundle.has_metadata else status


def _notes(metadata: Metadata) -> tuple[str, ...]:
    layers = find_float_quantizing_layers(metadata)
    if not layers:
        return ()
    names = ", ".join(layer.display_name for layer in layers[:_NAMED])
    more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
    return (
        f"float32 results are quantized in {names}{more}; these layers can differ by one step"
        " from a"
        " reference with another order of additions or other functions",
    )
