"""The state of a machine as flat arrays, which both engines share and snapshots copy."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmpsim.config import DeviceConfig
from nmpsim.isa.csrs import CSR_ROWS, CsrAddress
from nmpsim.isa.table import CONTROL_BYTES, SEMAPHORES, Unit
from nmpsim.kernels.saturation_stages import STAGE_NAMES
from nmpsim.memory.dram import CURSOR_WORDS
from nmpsim.memory.owned_results import OWNED_COLUMNS
from nmpsim.timing.dram import CHANNEL_WORDS, MAX_CHANNELS, reset_dram, restart_dram

Int = int | np.int64
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

STAGES = len(STAGE_NAMES)
NEVER = 1 << 62
"""A cycle that never comes."""

CSRS = tuple(CsrAddress)
"""CSRs in the order of the ``csr`` field of CORE."""
CSR_COLUMN = {int(csr): column for column, csr in enumerate(CSRS)}

SCRATCHPAD_SLACK = 64
"""Bytes after each scratchpad that kernels may read but never use."""


class CoreStatus(IntEnum):
    """Execution status of a core."""

    RUNNING = 0
    WAITING_UNIT = 1
    AT_BARRIER = 2
    PENDING = 3
    HALTED = 4


class Outcome(IntEnum):
    """Outcome of an engine's execution: the reason why the engine returned."""

    DONE = 0
    PAUSED = 1
    LAYER_END = 2
    TRAP = 3
    DEADLOCK = 4
    CYCLE_LIMIT = 5
    STOPPED = 6
    TIMEOUT = 7
    VIOLATION = 8
    """Weights beyond a tensor are not zero, which engines check on request."""


class CountColumn(IntEnum):
    """Columns of a layer's ``counts``; the first eight are cycles of cores by activity.

    The columns ``SCRATCHPAD_...`` are bytes that a unit reads or writes. ``INSTRUCTIONS`` includes
    tensor instructions.
    """

    CONTROL = 0
    WAIT_LOAD = 1
    WAIT_STORE = 2
    WAIT_MAC = 3
    WAIT_VECTOR = 4
    BARRIER = 5
    SEMAPHORE = 6
    IDLE = 7
    BUSY_LOAD = 8
    BUSY_STORE = 9
    BUSY_MAC = 10
    BUSY_VECTOR = 11
    BYTES_READ = 12
    BYTES_WRITTEN = 13
    BURSTS = 14
    ROW_MISSES = 15
    MACS = 16
    TENSOR_INSTRUCTIONS = 17
    VECTOR_ELEMENTS = 18
    SCRATCHPAD_DMA = 19
    SCRATCHPAD_MAC = 20
    SCRATCHPAD_VECTOR = 21
    BURSTS_WRITTEN = 22
    INSTRUCTIONS = 23
    BURSTS_SHARED = 24


class CycleCause(IntEnum):
    """Causes of a core's cycles, the columns of ``spent``.

    The MAC array or the vector unit if it worked; else UNUSED if the layer gave work to other cores
    only; else the activity of the control core.
    """

    MAC = 0
    VECTOR = 1
    LOAD = 2
    STORE = 3
    CONTENTION = 4
    IMBALANCE = 5
    UNUSED = 6
    BARRIER = 7
    SEMAPHORE = 8
    IDLE = 9
    CONTROL = 10


class PathCause(IntEnum):
    """Causes of cycles on the critical path; QUEUEING repeats some cycles of DRAM causes."""

    MAC = 0
    VECTOR = 1
    DRAM_SERVICE = 2
    ROW_MISS = 3
    LATENCY = 4
    DMA_START = 5
    CONTROL = 6
    BARRIER = 7
    SEMAPHORE = 8
    QUEUEING = 9


class GrantKind(IntEnum):
    """Grant kind of a work log entry: none, an own DRAM grant, a shared or a buffered one."""

    NONE = 0
    """Work of an instruction."""
    OWN = 1
    """Grant of the DRAM: what it served of a transfer at once."""
    SHARED = 2
    """Grant of another core's equal request, which the DRAM served once (multicast)."""
    BUFFERED = 3
    """Grant of a store that the write buffer took at once."""


class WaitTarget(IntEnum):
    """Units and synchronizations that a core can wait for."""

    LOAD = 0
    STORE = 1
    MAC = 2
    VECTOR = 3
    BARRIER = 4
    SEMAPHORE = 5


class JobColumn(IntEnum):
    """Columns of a core's ``jobs`` after the columns of the transfer's cursor."""

    LAYER = CURSOR_WORDS
    READY = CURSOR_WORDS + 1
    """Cycle of issue."""
    SETUP = CURSOR_WORDS + 2
    """Cycles from the start of the transfer to its first request."""
    BEGIN = CURSOR_WORDS + 3
    """Cycle at which the queue begins it."""
    PC = CURSOR_WORDS + 4
    """Address of its instruction."""
    DESCRIPTOR = CURSOR_WORDS + 5
    """Address of its descriptor."""
    KNOWN = CURSOR_WORDS + 6
    """Tick from which the DRAM knows of its next grant."""
    END = CURSOR_WORDS + 7
    """Tick at which its grants so far are served."""


class TrapField(IntEnum):
    """Indices of a machine's ``trap`` record: core, cause, value, pc and cycle of a run's end."""

    CORE = 0
    CAUSE = 1
    VALUE = 2
    PC = 3
    CYCLE = 4


CORE_CONSOLE_BYTES, CONSOLE_BYTES = 1 << 15, 1 << 17
"""Number of characters of a core's console, and of all consoles, that are kept: the first ones."""
MAX_QUEUED = 16
"""Largest queue depth of a device."""

CORE = np.dtype(
    [
        ("clock", "i8"),  # cycle that the core has reached
        ("pc", "i8"),
        ("descriptor", "i8"),  # address of the last descriptor
        ("retired", "i8"),  # executed instructions
        ("status", "i8"),
        ("wait", "i8", (2,)),  # (unit, job), (barrier, cores) or (semaphore, count)
        ("layer", "i8"),  # current layer, -1 just after a barrier
        ("region", "i8"),  # code region of the last instruction, see nmpsim.core.code_regions
        ("previous_layer", "i8"),  # layer before the last barrier
        ("pending", "i8", (CountColumn.IDLE + 1,)),  # cycles not yet attributed to a layer
        ("booked", "i8"),  # cycle up to which ``spent`` is complete
        ("spent", "i8", (len(CycleCause),)),  # the same by cause
        ("counted", "i8"),  # executed instructions that are attributed to a layer
        # Queueing delay of each DMA queue: in total, at the completion of instruction i at
        # i % depth, and the part that is attributed.
        ("queueing", "i8", (2,)),
        ("queueing_at", "i8", (2, MAX_QUEUED)),
        ("queueing_charged", "i8", (2,)),
        ("csr", "i8", (len(CSRS),)),  # unsigned; of counters the offset from the clock
        ("issued", "i8", (len(Unit),)),  # instructions issued to each unit
        ("unit_free", "i8", (len(Unit),)),  # cycle at which a unit can begin its next instruction
        ("served", "i8", (2,)),  # transfers of each DMA queue that the DRAM has served
        ("request", "i8", (2,)),  # cycle of the queue's next DRAM request, or NEVER
        # Last grant of the load queue: the transfer before it, the ticks of its begin and end.
        ("granted", "i8", (CURSOR_WORDS + 2,)),
        # Completion cycle of instruction i at i % depth, NEVER while unknown.
        ("finished", "i8", (len(Unit), MAX_QUEUED)),
        ("jobs", "i8", (2, MAX_QUEUED, CURSOR_WORDS + len(JobColumn))),
        ("registers", "i4", (32,)),
        ("printed", "i8"),  # characters stored to the console
    ]
)
"""State of a core except its scratchpad."""

LAYER = np.dtype(
    [
        ("counts", "i8", (len(CountColumn),)),
        ("spent", "i8", (len(CycleCause),)),  # cycles of all cores by cause
        ("worked", "i8"),  # bit n: core n had a tensor instruction for it
        ("saturated", "i8", (STAGES, 2)),  # values saturated, by stage and side (0 low, 1 high)
        ("worst", "i8", (STAGES, 2)),  # largest overshoot
        ("first", "i8", (STAGES, 2)),  # smallest index of a value that saturated, or NEVER
        ("elements", "i8"),  # results written
        ("channels", "i8"),
        ("channel_base", "i8"),  # first index in ``channel_saturated``
    ]
)
"""Counters of a layer."""

BARRIER = np.dtype([("layer", "i8"), ("cycle", "i8")])
"""The layer that a barrier ends, and the cycle of its release, or NEVER."""

SHARED = np.dtype(
    [
        ("image_base", "i8"),
        ("ram_base", "i8"),
        ("scratchpad_bytes", "i8"),
        ("dram", "i8", (MAX_CHANNELS, CHANNEL_WORDS)),  # see nmpsim.timing.dram
        ("last_barrier", "i8"),  # the one released last, or -1
        ("noted", "i8"),  # entries of ``Machine.work`` in use
        ("waited", "i8"),  # entries of ``Machine.waits`` in use
        ("code_base", "i8"),  # address of the first word of ``Machine.code_regions``
        ("transitions", "i8"),  # entries of ``Machine.transitions`` in use
        ("trap", "i8", (len(TrapField),)),
        ("semaphores", "i8", (SEMAPHORES,)),
        ("exit_status", "i8"),  # what a core stored to the exit register, signed, or NEVER
        ("stopped", "i8"),  # other running cores that this store halted
        ("logged", "i8"),  # entries of ``Machine.console`` in use
    ]
)
"""State that all cores share."""

WORK = np.dtype(
    [
        ("core", "i8"),
        ("unit", "i8"),
        ("is_grant", "i8"),  # a GrantKind
        ("pc", "i8"),  # address of the instruction
        ("descriptor", "i8"),  # address of its descriptor
        ("layer", "i8"),  # index, or the number of layers if it names none of the bundle
        ("begin", "i8"),  # cycle at which the unit, or the DRAM, begins
        ("end", "i8"),  # cycle from which it is free again
        ("done", "i8"),  # cycle from which the result is there: later than the end for transfers
        ("bytes", "i8"),  # moved; for a grant those of its bursts
        ("cursor", "i8", (CURSOR_WORDS,)),  # transfer before the grant
    ]
)
"""An entry of the work log: work of a unit, or a DRAM grant."""
MAX_NOTES = MAX_QUEUED + 2
"""Maximum number of WORK entries of a step: a grant, its transfer's end, empty transfers after."""


WAIT = np.dtype(
    [
        ("core", "i8"),
        ("what", "i8"),  # WaitTarget
        ("begin", "i8"),
        ("happened", "i8"),  # cycle of the last arrival, or of the post
        ("end", "i8"),  # cycle at which the core continues
        ("awaited", "i8"),  # job of the unit, or the core that arrived last or posted
    ]
)
"""An entry of the wait log. A step makes at most one, a release one for each core."""

TRANSITION = np.dtype(
    [
        ("core", "i8"),
        ("pc", "i8"),
        ("cycle", "i8"),  # cycle at which the core begins the instruction
        ("retired", "i8"),  # instructions that the core executed before
    ]
)
"""An entry of the transition log: an instruction in another code region than the last one."""


class Machine(NamedTuple):
    """Machine state in flat arrays.

    The last layer's record is for work that names no layer of the bundle.
    """

    cores: Any
    """[cores] of CORE."""
    layers: Any
    """[layers + 1] of LAYER."""
    owned: Int64s
    """[ranges, OWNED_COLUMNS] results that instructions own, see
    :mod:`nmpsim.memory.owned_results`."""
    channel_saturated: Int64s
    """[stages, 2, channels of all layers] saturated values."""
    barriers: Any
    """[barriers] of BARRIER."""
    shared: Any
    """[1] of SHARED."""
    image: Bytes
    """The bundle's read-only memory."""
    ram: Bytes
    """Read-write DRAM."""
    control: Bytes
    scratchpad: Bytes
    """[cores, bytes + slack]"""
    work: Any
    """[capacity] of WORK: work since the log was last read; with capacity 0 nothing is logged."""
    waits: Any
    """[capacity] of WAIT: waits since the log was last read; only together with ``work``."""
    console: Int64s
    """[CONSOLE_BYTES] characters of all consoles in order of time: ``cycle << 16 | core << 8 |
    character``."""
    formulas: Bytes
    """Text of the program's own formulas (see ``bundle/formulas.py``); empty if it has none."""
    code_regions: Int64s
    """[words] region of each code word, see :mod:`nmpsim.core.code_regions`; empty for no log."""
    execution_counts: Int64s
    """[words] executions of the instruction at each code word; empty if not counted."""
    transitions: Any
    """[capacity] of TRANSITION: transitions since the log was last read."""


def _records(count: int, dtype: Any) -> Any:
    return np.zeros(count, dtype).view(np.recarray)


def as_plain_arrays(machine: Machine) -> Machine:
    """Return a machine whose plain arrays share the memory of the machine's record arrays."""
    plain = {
        name: getattr(machine, name).view(dtype, np.ndarray)
        for name, dtype in (
            ("cores", CORE),
            ("layers", LAYER),
            ("barriers", BARRIER),
            ("shared", SHARED),
            ("work", WORK),
            ("waits", WAIT),
            ("transitions", TRANSITION),
        )
    }
    return machine._replace(**plain)


def make_machine(
    config: DeviceConfig,
    image: Bytes,
    image_base: int,
    rw_base: int,
    rw_bytes: int,
    layer_channels: Sequence[int],
    barrier_layers: Sequence[int],
    formulas: bytes = b"",
    owned: Sequence[tuple[int, ...]] = (),
) -> Machine:
    """Make a machine with the memory of a bundle, in its initial state.

    ``layer_channels`` has the channels of each layer, ``barrier_layers`` the layer that each
    barrier ends (or the number of layers, for none). ``formulas`` is the text of the program's own,
    ``owned`` has the rows of ``Machine.owned``.
    """
    n = config.cores_count
    scratchpad = np.zeros((n, config.scratchpad_bytes + SCRATCHPAD_SLACK), np.uint8)
    layers = _records(len(layer_channels) + 1, LAYER)
    layers.channels[:] = [*layer_channels, 1]
    layers.channel_base[1:] = np.cumsum(layers.channels)[:-1]
    barriers = _records(len(barrier_layers), BARRIER)
    barriers.layer[:] = barrier_layers
    shared = _records(1, SHARED)
    shared.image_base[:] = image_base
    shared.ram_base[:] = rw_base
    shared.scratchpad_bytes[:] = config.scratchpad_bytes
    machine = Machine(
        cores=_records(n, CORE),
        layers=layers,
        owned=np.array(sorted(owned), np.int64).reshape(-1, OWNED_COLUMNS),
        channel_saturated=np.zeros((STAGES, 2, int(layers.channels.sum())), np.int64),
        barriers=barriers,
        shared=shared,
        image=image,
        ram=np.zeros(rw_bytes, np.uint8),
        control=np.zeros(CONTROL_BYTES, np.uint8),
        scratchpad=scratchpad,
        work=_records(0, WORK),
        waits=_records(0, WAIT),
        console=np.zeros(CONSOLE_BYTES, np.int64),
        formulas=np.frombuffer(bytearray(formulas), np.uint8),
        code_regions=np.zeros(0, np.int64),
        execution_counts=np.zeros(0, np.int64),
        transitions=_records(0, TRANSITION),
    )
    _reset_rest(machine)  # memory is zero, and is allocated as it is written
    return machine


def make_discarded_counters() -> tuple[Any, Int64s]:
    """Make a record of LAYER and [stages, 2, 1] for results that no counter includes."""
    layers = _records(1, LAYER)
    layers.channels[:] = 1
    return layers, np.zeros((STAGES, 2, 1), np.int64)


def reset(machine: Machine) -> None:
    """Reset a machine to its initial state, and clear its memory."""
    for memory in (machine.ram, machine.scratchpad):
        memory[...] = 0
    _reset_rest(machine)


def _reset_rest(machine: Machine) -> None:
    reset_dram(machine.shared.dram[0])
    _reset_cores(machine)


def restart(machine: Machine, costs: Any) -> None:
    """Reset a machine to cycle 0, but keep its memory and the open DRAM rows."""
    restart_dram(machine.shared.dram[0], int(machine.cores.clock.max()), costs)
    _reset_cores(machine)


def _reset_cores(machine: Machine) -> None:
    """Reset cores, queues, control blocks and all counters."""
    machine.control[...] = 0
    cores, layers, shared = machine.cores, machine.layers, machine.shared
    cores.view(np.uint8)[:] = 0
    cores.csr[:] = [CSR_ROWS[csr].reset for csr in CSRS]
    cores.csr[:, CSR_COLUMN[CsrAddress.MHARTID]] = np.arange(cores.size)
    cores.csr[:, CSR_COLUMN[CsrAddress.MCORES]] = cores.size
    cores.status[:] = CoreStatus.HALTED
    cores.request[:] = NEVER
    cores.layer[:] = -1
    cores.previous_layer[:] = layers.size - 1
    for account in ("counts", "spent", "worked"):
        layers[account][...] = 0
    clear_value_counters(machine)
    machine.barriers.cycle[:] = NEVER
    shared.last_barrier[:] = -1
    shared.noted[:] = 0
    shared.waited[:] = 0
    shared.transitions[:] = 0
    shared.trap[:] = -1
    shared.semaphores[:] = 0
    shared.exit_status[:] = NEVER
    shared.stopped[:] = 0
    shared.logged[:] = 0


def clear_value_counters(machine: Machine) -> None:
    """Clear a machine's counters of elements and saturated values."""
    layers = machine.layers.view(np.ndarray)  # record fields are slow to access
    saturated = layers["saturated"]
    machine.channel_saturated[saturated.any(axis=0)] = 0  # saturation is counted in both
    saturated[...] = 0
    layers["worst"][...] = 0
    layers["elements"][...] = 0
    layers["first"][...] = NEVER


def start_cores(machine: Machine, entry: int) -> None:
    """Start all cores at the address ``entry``, in the cycle of the latest core."""
    cores = machine.cores
    cores.clock[:] = cores.clock.max()
    cores.booked[:] = cores.clock
    cores.pc[:] = entry
    cores.status[:] = CoreStatus.RUNNING
    cores.layer[:] = -1
    cores.region[:] = 0


def end_segment(machine: Machine) -> None:
    """End a device segment: advance all clocks to the latest, and count the difference as idle."""
    cores = machine.cores
    end = cores.clock.max()
    np.add.at(
        machine.layers.counts, (cores.previous_layer, int(CountColumn.IDLE)), end - cores.clock
    )
    reached = cores.clock.copy()
    for cause, unit in ((CycleCause.MAC, Unit.MAC), (CycleCause.VECTOR, Unit.VECTOR)):
        until = np.clip(cores.unit_free[:, unit], reached, end)
        np.add.at(machine.layers.spent, (cores.previous_layer, int(cause)), until - reached)
        reached = until
    np.add.at(machine.layers.spent, (cores.previous_layer, int(CycleCause.IDLE)), end - reached)
    cores.clock[:] = end
    cores.booked[:] = end
