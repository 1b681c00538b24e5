"""Each cycle of each core has one cause: against a count cycle by cycle, on both engines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from core_machines import Program, run, run_both
from device_files import device_files
from hypothesis import given
from test_core_random_cores import CORES, programs
from tiers import examples

from nmpsim.config import DeviceConfig
from nmpsim.core.reference import tensor
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.units import UnitQueue
from nmpsim.core.state import CoreStatus, CountColumn, CycleCause, Machine
from nmpsim.isa.table import Unit

CONTROL_CORE = {
    CountColumn.CONTROL: "control",
    CountColumn.WAIT_LOAD: "transfer",
    CountColumn.WAIT_STORE: "transfer",
    CountColumn.WAIT_MAC: "never",
    CountColumn.WAIT_VECTOR: "never",
    CountColumn.BARRIER: "barrier",
    CountColumn.SEMAPHORE: "semaphore",
}
"""What a cycle counts as in which no unit works."""
TOGETHER = {
    CycleCause.LOAD: "transfer",
    CycleCause.STORE: "transfer",
    CycleCause.CONTENTION: "transfer",
    CycleCause.IMBALANCE: "barrier",
}
"""Causes that differ by more than what the control core does."""


class ActivityRecord:
    """Record of what units and control cores of the reference engine do in each cycle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy: set[tuple[int, Unit, int]] = set()
        self.did: dict[tuple[int, int], CountColumn] = {}
        self.unused: set[tuple[int, int]] = set()
        self.has_work = [False] * CORES
        self.passed = [0] * CORES
        compute, spend, works, leave = (
            tensor.issue_compute_job,
            Core.spend_cycles,
            Core.begin_layer,
            Core.leave_layer,
        )

        def noted_compute(queue: UnitQueue, layer: int, cycles: int) -> None:
            compute(queue, layer, cycles)
            end = queue.free
            core, unit = queue.core.number, queue.unit
            self.busy |= {(core, unit, cycle) for cycle in range(end - cycles, end)}

        def noted_spend(core: Core, activity: CountColumn, cause: CycleCause, cycles: int) -> int:
            for cycle in range(core.clock, core.clock + cycles):
                self.did[core.number, cycle] = activity
            return spend(core, activity, cause, cycles)

        def noted_work(core: Core, layer: int) -> None:
            works(core, layer)
            self.has_work[core.number] = True

        def noted_leave(core: Core, ended: int) -> None:
            leave(core, ended)
            if core.status == CoreStatus.HALTED:
                return
            if any(self.has_work) and not self.has_work[core.number]:
                cycles = range(self.passed[core.number], core.clock)
                self.unused |= {(core.number, cycle) for cycle in cycles}
            self.passed[core.number] = core.clock
            if core.number == CORES - 1:  # all meet at every barrier
                self.has_work = [False] * CORES

        monkeypatch.setattr(Core, "begin_layer", noted_work)
        monkeypatch.setattr(Core, "leave_layer", noted_leave)
        monkeypatch.setattr(tensor, "issue_compute_job", noted_compute)
        monkeypatch.setattr(Core, "spend_cycles", noted_spend)

    def causes(self) -> Counter[str]:
        """Count cycles by cause."""
        found: Counter[str] = Counter()
        for (core, cycle), activity in self.did.items():
            if (core, Unit.MAC, cycle) in self.busy:
                found["mac"] += 1
            elif (core, Unit.VECTOR, cycle) in self.busy:
                found["vector"] += 1
            elif (core, cycle) in self.unused:
                found["unused"] += 1
            else:
                found[CONTROL_CORE[activity]] += 1
        return found


def count_spent_cycles(m: Machine) -> Counter[str]:
    """Count the machine's accounted cycles by cause, with those not yet assigned to a layer."""
    record: Any = m.layers.spent.sum(axis=0) + m.cores.spent.sum(axis=0)
    found: Counter[str] = Counter()
    for cause in CycleCause:
        found[TOGETHER.get(cause, cause.name.lower())] += int(record[cause])
    return +found


def with_device(program: Program, config: DeviceConfig) -> Program:
    return attrs.evolve(program, config=config)


@given(programs(), device_files(CORES))
@examples(60)
def test_causes_equal_a_count_cycle_by_cycle(program: Program, config: DeviceConfig) -> None:
    program = with_device(program, config)
    with pytest.MonkeyPatch.context() as patch:
        watch = ActivityRecord(patch)
        _, m = run("reference", program)
    assert count_spent_cycles(m) == watch.causes()
    assert m.cores.booked.tolist() == m.cores.clock.tolist()
    assert (m.layers.spent >= 0).all()
    assert m.layers.spent.sum() == m.layers.counts[:, : CountColumn.IDLE + 1].sum()


@given(programs(), device_files(CORES))
@examples(100)
def test_both_engines_agree_on_random_devices(program: Program, config: DeviceConfig) -> None:
    m = run_both(with_device(program, config), expect=None)
    assert m.layers.spent.sum() + m.cores.spent.sum() == m.cores.clock.sum()
