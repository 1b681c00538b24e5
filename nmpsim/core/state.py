"""The machine as a handful of flat arrays: what both engines work on, and what a snapshot copies."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmpsim.config import DeviceConfig
from nmpsim.isa.table import CONTROL_BYTES, SEMAPHORES, Csr, Unit
from nmpsim.kernels.stages import STAGE_NAMES
from nmpsim.timing.dram import CURSOR_WORDS

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

STAGES = len(STAGE_NAMES)
NEVER = 1 << 62
"""A cycle that does not come."""

CSRS = tuple(Csr)
"""CSRs in the order of ``Machine.csr``."""
CSR_COLUMN = {int(csr): column for column, csr in enumerate(CSRS)}

SCRATCHPAD_SLACK = 64
"""Bytes behind each scratchpad that kernels may read but never use."""


class Status(IntEnum):
    """What a core is doing."""

    RUNNING = 0
    WAITING_UNIT = 1
    AT_BARRIER = 2
    PENDING = 3
    HALTED = 4


class Outcome(IntEnum):
    """Why an engine came back."""

    DONE = 0
    PAUSED = 1
    LAYER_END = 2
    TRAP = 3
    DEADLOCK = 4
    CYCLE_LIMIT = 5


class Count(IntEnum):
    """Columns of ``Machine.counts``. The first eight say where a core's cycles went."""

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


class Job(IntEnum):
    """Columns of ``Machine.jobs`` behind the transfer's cursor."""

    LAYER = CURSOR_WORDS
    READY = CURSOR_WORDS + 1
    """Cycle of issue."""
    SETUP = CURSOR_WORDS + 2
    """Cycles from the start of the transfer to its first request."""


class Trap(IntEnum):
    """Entries of ``Machine.trap``."""

    CORE = 0
    CAUSE = 1
    VALUE = 2
    PC = 3
    CYCLE = 4


class Machine(NamedTuple):
    """All state. N cores, U = 4 units, Q = queue depth, L layers, B barriers, C channels.

    Row L of the counters is for work that names no layer.
    """

    image: Bytes
    """The bundle's read-only memory."""
    ram: Bytes
    """Read-write DRAM."""
    bases: Int64s
    """Addresses of ``image`` and ``ram``."""
    scratchpad: Bytes
    """[N, bytes + slack]"""
    scratchpad_i8: npt.NDArray[np.int8]
    """The same memory as int8."""
    scratchpad_i32: npt.NDArray[np.int32]
    """The same memory as int32."""
    scratchpad_bytes: Int64s
    """[1]"""
    control: Bytes
    semaphores: Int64s
    registers: npt.NDArray[np.int32]
    """[N, 32]"""
    csr: Int64s
    """[N, len(CSRS)], unsigned 32-bit values; the counters live in clock and retired."""
    pc: Int64s
    clock: Int64s
    """[N] cycle that each core has reached."""
    retired: Int64s
    """[N] instructions."""
    status: Int64s
    wait: Int64s
    """[N, 2] what a core waits for: (unit, job), (barrier, cores) or (semaphore, count)."""
    issued: Int64s
    """[N, U] instructions given to each unit."""
    finished: Int64s
    """[N, U, Q] completion cycle of instruction i, at i % Q; NEVER while unknown."""
    unit_free: Int64s
    """[N, U] cycle at which the unit can begin its next instruction."""
    served: Int64s
    """[N, 2] transfers of each DMA queue that the DRAM has served."""
    jobs: Int64s
    """[N, 2, Q, cursor and Job columns]"""
    request: Int64s
    """[N, 2] cycle of the queue's next DRAM request, or NEVER."""
    dram: Int64s
    """[2] cycle at which the DRAM is free; open row"""
    layer: Int64s
    """[N] layer that the core works on, -1 just after a barrier"""
    pending: Int64s
    """[N, 8] cycles of a core that are not yet given to a layer"""
    counts: Int64s
    """[L + 1, len(Count)]"""
    barrier_layer: Int64s
    """[B] layer that a barrier ends, or L"""
    barrier_cycle: Int64s
    """[B] cycle of release, or NEVER"""
    cut: Int64s
    """[L + 1, STAGES, 2] values cut, by side (0 low, 1 high)"""
    worst: Int64s
    """[L + 1, STAGES, 2] largest overshoot"""
    first: Int64s
    """[L + 1, STAGES, 2] smallest index of a value that was cut, or NEVER"""
    elements: Int64s
    """[L + 1] results written"""
    channel_cut: Int64s
    """[C, STAGES, 2]"""
    channel_base: Int64s
    """[L + 1] first row of a layer in ``channel_cut``"""
    channels: Int64s
    """[L + 1] channels of a layer"""
    trap: Int64s


def make_machine(
    config: DeviceConfig,
    image: Bytes,
    image_base: int,
    rw_base: int,
    rw_bytes: int,
    layer_channels: Sequence[int],
    barrier_layers: Sequence[int],
) -> Machine:
    """A machine at rest with a bundle's memory; all counters are zero."""
    n, units, depth, layers = config.cores_count, len(Unit), config.queues_depth, len(layer_channels)

    def zeros(*shape: int, dtype: Any = np.int64) -> Any:
        return np.zeros(shape, dtype)

    scratchpad = zeros(n, config.scratchpad_bytes + SCRATCHPAD_SLACK, dtype=np.uint8)
    channels = np.array([*layer_channels, 1], np.int64)
    base = np.concatenate(([0], np.cumsum(channels)))
    machine = Machine(
        image=image,
        ram=zeros(rw_bytes, dtype=np.uint8),
        bases=np.array([image_base, rw_base], np.int64),
        scratchpad=scratchpad,
        scratchpad_i8=scratchpad.view(np.int8),
        scratchpad_i32=scratchpad.view(np.int32),
        scratchpad_bytes=np.array([config.scratchpad_bytes], np.int64),
        control=zeros(CONTROL_BYTES, dtype=np.uint8),
        semaphores=zeros(SEMAPHORES),
        registers=zeros(n, 32, dtype=np.int32),
        csr=zeros(n, len(CSRS)),
        pc=zeros(n),
        clock=zeros(n),
        retired=zeros(n),
        status=np.full(n, int(Status.HALTED), np.int64),
        wait=zeros(n, 2),
        issued=zeros(n, units),
        finished=zeros(n, units, depth),
        unit_free=zeros(n, units),
        served=zeros(n, 2),
        jobs=zeros(n, 2, depth, CURSOR_WORDS + len(Job)),
        request=np.full((n, 2), NEVER, np.int64),
        dram=np.array([0, -1], np.int64),
        layer=np.full(n, -1, np.int64),
        pending=zeros(n, Count.IDLE + 1),
        counts=zeros(layers + 1, len(Count)),
        barrier_layer=np.array(barrier_layers, np.int64).reshape(-1),
        barrier_cycle=np.full(len(barrier_layers), NEVER, np.int64),
        cut=zeros(layers + 1, STAGES, 2),
        worst=zeros(layers + 1, STAGES, 2),
        first=np.full((layers + 1, STAGES, 2), NEVER, np.int64),
        elements=zeros(layers + 1),
        channel_cut=zeros(int(base[-1]), STAGES, 2),
        channel_base=base[:-1].astype(np.int64),
        channels=channels,
        trap=np.full(len(Trap), -1, np.int64),
    )
    machine.csr[:, CSR_COLUMN[Csr.MISA]] = 0x4000_1100  # RV32, I and M
    machine.csr[:, CSR_COLUMN[Csr.MHARTID]] = np.arange(n)
    return machine


def start_cores(machine: Machine, entry: int) -> None:
    """Let every core begin at ``entry``, all at the cycle that the last one reached."""
    machine.clock[:] = machine.clock.max()
    machine.pc[:] = entry
    machine.status[:] = Status.RUNNING
    machine.layer[:] = -1


def reset_counters(machine: Machine) -> None:
    """Back to cycle 0 with empty queues and counters; memory stays as it is."""
    for array in (
        machine.semaphores,
        machine.registers,
        machine.clock,
        machine.retired,
        machine.issued,
        machine.finished,
        machine.unit_free,
        machine.served,
        machine.pending,
        machine.counts,
        machine.cut,
        machine.worst,
        machine.elements,
        machine.channel_cut,
    ):
        array[...] = 0
    machine.status[:] = Status.HALTED
    machine.request[...] = NEVER
    machine.dram[:] = (0, -1)
    machine.barrier_cycle[:] = NEVER
    machine.first[...] = NEVER
    machine.trap[:] = -1


