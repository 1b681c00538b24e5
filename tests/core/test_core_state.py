"""The machine that both engines work on: its arrays, its reset, the end of a part of a run."""

from __future__ import annotations

from enum import IntEnum

import attrs
import numpy as np
import pytest

from nmpsim.config import default_device
from nmpsim.core import state
from nmpsim.core.state import (
    CSR_COLUMN,
    NEVER,
    CoreStatus,
    CountColumn,
    CsrAddress,
    CycleCause,
    JobColumn,
    Machine,
    Outcome,
    PathCause,
    TrapField,
    WaitTarget,
    end_segment,
    make_machine,
    reset,
    restart,
    start_cores,
)
from nmpsim.isa.table import Unit
from nmpsim.timing import get_costs
from nmpsim.timing.dram import (
    BANK_WORDS,
    BANKS,
    FREE,
    NONE,
    OPEN_ROW,
    READY,
    REFRESHES,
    WRITES,
)

IMAGE = np.arange(100, dtype=np.uint8)
CORES, SPM_BYTES = 3, 8192


def machine() -> Machine:
    """Build a machine of three cores, layers of 5 and 7 channels, and three barriers."""
    config = attrs.evolve(default_device(), cores_count=CORES, scratchpad_bytes=SPM_BYTES)
    return make_machine(config, IMAGE, 0x8000_0000, 0xA000_0000, 4096, [5, 7], [0, 2, 1])


@pytest.mark.parametrize(
    "numbers", [CoreStatus, Outcome, CountColumn, CycleCause, PathCause, WaitTarget, TrapField]
)
def test_members_are_numbered_from_zero(numbers: type[IntEnum]) -> None:
    assert [int(member) for member in numbers.__members__.values()] == [*range(len(numbers))]


def test_words_of_a_transfer_follow_its_cursor() -> None:
    """A cursor has eight words (docs/trace.md, state.WORK)."""
    assert [int(job) for job in JobColumn.__members__.values()] == [8, 9, 10, 11, 12, 13, 14, 15]


def test_pending_causes_have_no_layer() -> None:
    """The first eight counts say where a core's cycles went; idle is the last of them."""
    names = [count.name for count in list(CountColumn)[:8]]
    assert names == [
        "CONTROL", "WAIT_LOAD", "WAIT_STORE", "WAIT_MAC", "WAIT_VECTOR", "BARRIER", "SEMAPHORE",
        "IDLE",
    ]  # fmt: skip


def test_machine_arrays_have_their_shapes() -> None:
    m = machine()
    assert m.scratchpad.shape == (CORES, SPM_BYTES + 64), "64 bytes that kernels may read"
    assert (m.image is IMAGE, m.ram.size, m.control.size) == (True, 4096, 4096)
    m.scratchpad[1, 16:24] = [1, 2, 3, 4, 5, 6, 7, 0x80]
    assert m.scratchpad.view(np.int8)[1, 16:24].tolist() == [1, 2, 3, 4, 5, 6, 7, -128]
    assert m.scratchpad.view(np.int16)[1, 8:12].tolist() == [0x201, 0x403, 0x605, 0x8007 - 0x10000]
    assert m.scratchpad.view(np.int32)[1, 4:6].tolist() == [0x4030201, 0x80070605 - (1 << 32)]
    assert m.scratchpad.view(np.int64)[1, 2:3].tolist() == [0x8007060504030201 - (1 << 64)]
    assert m.layers.channels.tolist() == [5, 7, 1], "the last one is for work of no layer"
    assert m.layers.channel_base.tolist() == [0, 5, 12]
    assert m.channel_saturated.shape == (5, 2, 13)
    assert m.barriers.layer.tolist() == [0, 2, 1]
    shared = m.shared[0]
    assert (shared.image_base, shared.ram_base) == (0x8000_0000, 0xA000_0000)
    assert shared.scratchpad_bytes == SPM_BYTES
    assert (m.work.size, m.waits.size, m.cores.size, m.shared.size) == (0, 0, CORES, 1)


def test_records_have_room_for_all_fields() -> None:
    """Queues hold 16 instructions at most; there are two DMA queues and four units."""
    m = machine()
    core, layer, shared = m.cores[0], m.layers[0], m.shared[0]
    assert core["wait"].shape == (2,)
    assert core["pending"].shape == (8,)
    assert core["spent"].shape == layer["spent"].shape == (11,)
    assert core["queueing"].shape == core["queueing_charged"].shape == (2,)
    assert core["served"].shape == core["request"].shape == (2,)
    assert core["queueing_at"].shape == (2, 16)
    assert core["csr"].shape == (len(CsrAddress),)
    assert core["issued"].shape == core["unit_free"].shape == (4,)
    assert core["finished"].shape == (4, 16)
    assert core["jobs"].shape == (2, 16, 16)
    assert core["registers"].shape == (32,)
    assert layer["counts"].shape == (25,)
    assert layer["saturated"].shape == layer["worst"].shape == layer["first"].shape == (5, 2)
    assert (shared["trap"].shape, shared["semaphores"].shape) == ((5,), (64,))
    assert state.WORK["cursor"].shape == (8,)
    assert state.MAX_NOTES == 18, "a grant, its transfer's end, a queue of empty ones behind"


def test_consoles_keep_32_kib_of_a_core_and_128_kib_in_all() -> None:
    assert (state.CORE_CONSOLE_BYTES, state.CONSOLE_BYTES) == (32 * 1024, 128 * 1024)


def test_reset_restores_the_initial_state() -> None:
    m = machine()
    for array in (m.ram, m.control, m.scratchpad):
        array[...] = 77
    m.cores.view(np.uint8)[:] = 77
    for account in (
        m.layers.counts,
        m.layers.spent,
        m.layers.saturated,
        m.layers.worst,
        m.layers.first,
    ):
        account[...] = 77
    m.layers.elements[:] = 77
    m.channel_saturated[...] = 77
    for name in ("dram", "last_barrier", "noted", "waited", "trap", "semaphores"):
        m.shared[name][...] = 77
    for name in ("exit_status", "stopped", "logged"):
        m.shared[name][...] = 77
    m.barriers.cycle[:] = 77
    reset(m)
    for array in (m.ram, m.control, m.scratchpad, m.channel_saturated):
        assert not array.any()
    cores, layers, shared = m.cores, m.layers, m.shared[0]
    csr = {name: cores.csr[:, CSR_COLUMN[name]].tolist() for name in CsrAddress}
    assert csr.pop(CsrAddress.MISA) == [0x4000_1100] * CORES, "RV32, I and M"
    assert csr.pop(CsrAddress.MSTATUS) == [0x1800] * CORES, "MPP is machine mode"
    assert csr.pop(CsrAddress.MHARTID) == [0, 1, 2]
    assert csr.pop(CsrAddress.MCORES) == [CORES] * CORES
    assert all(values == [0] * CORES for values in csr.values())
    assert (shared.exit_status, shared.stopped, shared.logged) == (NEVER, 0, 0)
    assert not cores.printed.any()
    assert (cores.status == CoreStatus.HALTED).all()
    assert (cores.request == NEVER).all()
    assert (cores.layer == -1).all()
    assert (cores.previous_layer == 2).all()
    for name in ("clock", "pc", "registers", "jobs", "issued", "pending", "spent"):
        assert not cores[name].any()
    booked = (layers.counts, layers.spent, layers.worked, layers.saturated)
    for account in (*booked, layers.worst, layers.elements):
        assert not account.any()
    assert (layers.first == NEVER).all()
    assert (m.barriers.cycle == NEVER).all()
    assert shared.last_barrier == -1
    assert not shared.dram[:, [FREE, REFRESHES]].any()
    assert (shared.dram[:, WRITES] == NONE).all()
    assert (shared.dram[:, BANKS + OPEN_ROW :: BANK_WORDS] == NONE).all()
    assert (shared.dram[:, BANKS + READY :: BANK_WORDS] == 0).all()
    assert (shared.noted, shared.waited) == (0, 0)
    assert (shared.trap == -1).all()
    assert not shared.semaphores.any()
    assert layers.channels.tolist() == [5, 7, 1]


def test_another_run_finds_memory_and_open_rows() -> None:
    m = machine()
    for memory in (m.ram, m.control, m.scratchpad):
        memory[...] = 77
    m.shared.dram[0, 0, BANKS + OPEN_ROW] = 5
    m.cores.clock[:] = [30, 40, 20]
    m.cores.registers[:] = 77
    m.layers.counts[...] = 77
    m.barriers.cycle[:] = 77
    restart(m, get_costs(default_device()))
    assert (m.ram == 77).all() and (m.scratchpad == 77).all()
    assert m.shared.dram[0, 0, BANKS + OPEN_ROW] == 5
    assert m.shared.dram[0, 0, FREE] == 0, "no turnaround: what is past does not matter"
    for array in (m.control, m.cores.clock, m.cores.registers, m.layers.counts):
        assert not array.any()
    assert (m.barriers.cycle == NEVER).all()


def test_an_unreachable_cycle_is_not_a_stop() -> None:
    """Beyond the largest cycle limit of a device, and room to add to it."""
    assert NEVER == 1 << 62


def test_cores_start_together() -> None:
    m = machine()
    m.cores.clock[:] = 10, 30, 20
    m.cores.layer[:] = 1
    start_cores(m, 0x8000_0040)
    assert m.cores.clock.tolist() == [30, 30, 30]
    assert m.cores.booked.tolist() == [30, 30, 30]
    assert m.cores.pc.tolist() == [0x8000_0040] * CORES
    assert (m.cores.status == CoreStatus.RUNNING).all()
    assert (m.cores.layer == -1).all()


def test_a_core_that_halts_early_is_idle() -> None:
    """By hand. Core 0 halts at 100, its MAC array works until 130, its vector unit until 150.

    Core 1 halts last, at 160, and its units are done; core 2 halts at 140, its vector unit works
    until 155, its MAC array until 170: that is behind the end. Layers: 0, 1, and 1.
    """
    m = machine()
    m.cores.clock[:] = 100, 160, 140
    m.cores.previous_layer[:] = 0, 1, 1
    m.cores.unit_free[0, Unit.MAC], m.cores.unit_free[0, Unit.VECTOR] = 130, 150
    m.cores.unit_free[1, Unit.MAC], m.cores.unit_free[1, Unit.VECTOR] = 90, 120
    m.cores.unit_free[2, Unit.MAC], m.cores.unit_free[2, Unit.VECTOR] = 170, 155
    end_segment(m)
    assert m.cores.clock.tolist() == m.cores.booked.tolist() == [160, 160, 160]
    assert m.layers.counts[:, CountColumn.IDLE].tolist() == [60, 20, 0]
    first, second, none = ({CycleCause(i).name: int(n) for i, n in enumerate(spent) if n}
                           for spent in m.layers.spent)  # fmt: skip
    assert first == {"MAC": 30, "VECTOR": 20, "IDLE": 10}
    assert second == {"MAC": 20}
    assert none == {}
    end_segment(m)
    assert m.layers.counts[:, CountColumn.IDLE].tolist() == [60, 20, 0], (
        "all are at the end already"
    )
