"""How long a planned layer takes: its instructions simulated, without data.

The rules are those of the device (``docs/timing.md``): instructions of a core, queues, grants of
the shared DRAM, the barrier at the end. What a plan cannot know is which row is open at its begin.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Annotated

import attrs

from nmpsim.compiler.tiling.grants import Grant, Memory
from nmpsim.compiler.tiling.plan import Command, LayerPlan
from nmpsim.compiler.tiling.schedule import Item, schedule
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.table import DESCRIPTORS, Unit
from nmpsim.timing import Costs
from nmpsim.timing.work import named_cycles

ADDRESS_CYCLES = 2
"""``lui`` and ``addi`` before each tensor instruction."""
BARRIER_INSTRUCTIONS = 4
"""``lui``, ``addi``, ``addi``, ``nmp.barrier``"""
CORE, REQUEST = 0, 1
"""Who is next in time; a core comes before a request of the same cycle."""


@attrs.frozen
class Estimate:
    """What a layer is expected to take, from barrier to barrier."""

    cycles: int
    compute: Annotated[int, "cycles that the busiest core's unit works"]
    memory: Annotated[int, "cycles that the DRAM serves, row misses included"]
    grants: int
    bursts: int
    row_misses: int
    nbytes: Annotated[int, "bytes moved"]
    cores: Annotated[int, "cores with work"]


@attrs.frozen
class _Transfer:
    unit: int
    setup: int
    grants: tuple[Grant, ...]


@attrs.frozen
class _Work:
    unit: int
    cycles: int


class _Core:
    """One core's instructions and how far it is."""

    def __init__(self, steps: list[_Transfer | _Work | tuple[int, int]]) -> None:
        self.steps = steps
        self.at = 0
        self.clock = 0
        self.addressed = False
        """The address of the next instruction's descriptor is in its register."""
        self.ends: list[list[int | None]] = [[], [], [], []]
        """[unit] end of each instruction; None while the DRAM has not served it."""
        self.free = [0, 0, 0, 0]
        self.jobs: list[list[tuple[int, _Transfer]]] = [[], []]
        """[unit] transfers with their cycles of issue"""
        self.served = [0, 0]
        self.granted = [0, 0]
        """[unit] grants of the transfer that is being served"""
        self.awaits: tuple[int, int] | None = None
        """Unit and number of the transfer that it waits for."""


def simulate(plan: LayerPlan, memory: Memory) -> Estimate:
    """Simulate a plan."""
    return _Simulation(plan, memory).result()


def _steps(items: Iterable[Item], memory: Memory) -> list[_Transfer | _Work | tuple[int, int]]:
    return [
        _step(item, memory) if isinstance(item, Command) else (int(item[0]), item[1])
        for item in items
    ]


def _step(command: Command, memory: Memory) -> _Transfer | _Work:
    costs, words = memory.costs, command.words
    if command.mnemonic == "nmp.load":
        setup = costs.dma_startup_cycles + -(
            -padding_bytes(command) // costs.dma_fill_bytes_per_cycle
        )
        return _Transfer(Unit.LOAD, setup, memory.grants(words))
    if command.mnemonic == "nmp.store":
        return _Transfer(Unit.STORE, costs.dma_startup_cycles, memory.grants(words))
    instruction = BY_MNEMONIC[command.mnemonic]
    assert instruction.unit is not None and instruction.descriptor is not None
    descriptor = DESCRIPTORS[instruction.descriptor]
    return _Work(instruction.unit, named_cycles(descriptor, words, costs))


def padding_bytes(command: Command) -> int:
    """Bytes that a load fills."""
    words = command.words
    wide = words.get("pad_x_before", 0) + words["count_x"] + words.get("pad_x_after", 0)
    high = words.get("pad_y_before", 0) + words["count_y"] + words.get("pad_y_after", 0)
    return (wide * high - words["count_x"] * words["count_y"]) * words["run_bytes"]


class _Simulation:
    """Cores and DRAM requests in order of time."""

    def __init__(self, plan: LayerPlan, memory: Memory) -> None:
        self._costs: Costs = memory.costs
        self._row_miss_cycles = memory.row_miss_cycles
        self._plan = plan
        self._cores = [_Core(_steps(schedule(c, plan.unit), memory)) for c in plan.cores]
        self._next = [(0, CORE, number, 0) for number, _ in enumerate(self._cores)]
        self._dram_free = 0
        self._open_row = -1
        self._busy = 0
        self._grants = 0
        self._bursts = 0
        self._row_misses = 0

    def result(self) -> Estimate:
        """Until all cores are at the barrier."""
        queue = self._next
        while queue:
            time, kind, number, unit = heapq.heappop(queue)
            if kind == REQUEST:
                self._serve(number, unit, time)
            else:
                self._advance(number)
        moves = [
            command.words
            for steps in self._plan.cores
            for step in steps
            for command in (*step.loads, *step.stores)
        ]
        return Estimate(
            cycles=max(core.clock for core in self._cores) + self._costs.sync_barrier_cycles,
            compute=max(
                sum(s.cycles for s in core.steps if isinstance(s, _Work)) for core in self._cores
            ),
            memory=self._busy,
            grants=self._grants,
            bursts=self._bursts,
            row_misses=self._row_misses,
            nbytes=sum(w["run_bytes"] * w["count_x"] * w["count_y"] for w in moves),
            cores=sum(1 for core in self._cores if core.steps),
        )

    def _advance(self, number: int) -> None:
        """Run a core until a transfer that is not its turn yet, a wait, or the barrier."""
        core = self._cores[number]
        first = True
        while core.at < len(core.steps):
            step = core.steps[core.at]
            if isinstance(step, tuple):
                unit, left = step
                end = self._end(core, unit, len(core.ends[unit]) - 1 - left)
                if end is None:
                    return
                core.clock = max(core.clock, end) + 1
            else:
                if not core.addressed:
                    core.clock += ADDRESS_CYCLES
                    core.addressed, first = True, False
                end = self._end(
                    core, step.unit, len(core.ends[step.unit]) - self._costs.queues_depth
                )
                if isinstance(step, _Work):
                    core.clock = max(core.clock, end or 0) + self._costs.control_descriptor_cycles
                    self._work(core, step)
                else:
                    if end is None:
                        return
                    if not first or end > core.clock:
                        core.clock = max(core.clock, end)
                        heapq.heappush(self._next, (core.clock, CORE, number, 0))
                        return
                    core.clock += self._costs.control_descriptor_cycles
                    self._transfer(core, number, step)
                core.clock += 1
                core.addressed = False
            first = False
            core.at += 1
        core.clock += BARRIER_INSTRUCTIONS

    def _end(self, core: _Core, unit: int, job: int) -> int | None:
        """When an instruction of a unit ends; None, and the core waits, if that is not known."""
        if job < 0:
            return 0
        end = core.ends[unit][job]
        if end is None:
            core.awaits = (unit, job)
        return end

    def _work(self, core: _Core, step: _Work) -> None:
        end = max(core.clock, core.free[step.unit]) + step.cycles
        core.free[step.unit] = end
        core.ends[step.unit].append(end)

    def _transfer(self, core: _Core, number: int, step: _Transfer) -> None:
        unit = step.unit
        core.jobs[unit].append((core.clock, step))
        core.ends[unit].append(None)
        if core.served[unit] == len(core.jobs[unit]) - 1:
            self._begin(core, number, unit)

    def _begin(self, core: _Core, number: int, unit: int) -> None:
        """Start a queue's next transfers until one needs the DRAM or none is left."""
        while core.served[unit] < len(core.jobs[unit]):
            issued, job = core.jobs[unit][core.served[unit]]
            start = max(issued, core.free[unit]) + job.setup
            if job.grants:
                core.granted[unit] = 0
                heapq.heappush(self._next, (start, REQUEST, number, unit))
                return
            self._finish(core, number, unit, start, start)

    def _finish(self, core: _Core, number: int, unit: int, free: int, end: int) -> None:
        job = core.served[unit]
        core.free[unit] = free
        core.ends[unit][job] = end
        core.served[unit] += 1
        if core.awaits == (unit, job):
            core.awaits = None
            core.clock = max(core.clock, end)
            heapq.heappush(self._next, (core.clock, CORE, number, 0))

    def _serve(self, number: int, unit: int, time: int) -> None:
        """One grant."""
        core = self._cores[number]
        grants = core.jobs[unit][core.served[unit]][1].grants
        row, bursts, cycles = grants[core.granted[unit]]
        core.granted[unit] += 1
        if row != self._open_row:
            self._row_misses += 1
            cycles += self._row_miss_cycles
            self._open_row = row
        end = max(time, self._dram_free) + cycles
        self._dram_free = end
        self._busy += cycles
        self._grants += 1
        self._bursts += bursts
        if core.granted[unit] < len(grants):
            heapq.heappush(self._next, (end, REQUEST, number, unit))
        else:
            self._finish(core, number, unit, end, end + self._costs.dram_latency_cycles)
            self._begin(core, number, unit)
