"""The threads that calculate values: the engine's own, and helpers that are there while it runs."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.apart import Apart
from nmpsim.core.compiled.course import Course
from nmpsim.core.compiled.follow import ENGINE, LINE, Shared, follow, help_out
from nmpsim.core.compiled.perform import IS_PLAIN
from nmpsim.core.compiled.workplace import HIGH_LAYER, LOW_LAYER, PLACES, make_bench, places_of
from nmpsim.core.engine import Reached
from nmpsim.core.state import NEVER, Int64s, Machine

SEGMENTS = 16
"""Segments of a course that are done before Python, and so Ctrl-C, has its say."""
PAUSE_SECONDS = 50e-6
"""How long a helper sleeps that has found nothing to do for a while."""
PATIENCE_SECONDS = 5e-3
"""How long a piece of a run must last for helpers to be called in: shorter ones end before them."""


class Calls(NamedTuple):
    """What threads need to follow a course."""

    addresses: Int64s
    """[instructions] of what is compiled."""
    places: Int64s
    """[threads, PLACES] where memory is; see :class:`~nmpsim.core.compiled.workplace.At`."""
    tickets: Int64s
    """[cores, LINE] each core's ticket, the first number of each line."""
    done: Int64s
    """[threads, LINE] parts of segments that each thread has done; so here."""
    shared: Int64s
    """[Shared, LINE]; so here."""


class Accounts(NamedTuple):
    """What a helper counts: layers and cut values, as a machine has them; and its bench."""

    layers: Any
    channel_cut: Int64s
    bench: Int64s


class Team:
    """The engine's thread and its helpers, for one machine at a time."""

    def __init__(self, code: Apart, threads: int) -> None:
        self._code = code
        self._threads = 1 if IS_PLAIN else threads
        self.patience_seconds = PATIENCE_SECONDS
        self._longest_seconds = 0.0
        self._calls: Calls | None = None
        self._shape: tuple[int, ...] = ()
        self._bench: tuple[int, Int64s] | None = None
        self._accounts: list[Accounts] = []
        self._helpers: list[_Helper] = []

    def follow(self, machine: Machine, course: Course, reached: Reached, strict: bool) -> bool:
        """Calculate all values of a course; False if data decides what happens."""
        with self._at_work(machine, strict) as calls:
            for first in range(0, len(course.lists), SEGMENTS):
                if not follow(calls, course.items, course.lists[first : first + SEGMENTS]):
                    return False
                reached(int(course.reached[first : first + SEGMENTS][-1]))
        return True

    def bench_for(self, machine: Machine) -> Int64s:
        """The bench of the engine's own thread."""
        size = machine.scratchpad.shape[1]
        if self._bench is None or self._bench[0] != size:
            self._bench = size, make_bench(machine)
        return self._bench[1]

    @contextmanager
    def _at_work(self, machine: Machine, strict: bool) -> Iterator[Calls]:
        """The helpers do what comes up; behind it, all counts are the machine's."""
        calls = self._calls_for(machine)
        self._calls = None  # what is interrupted before its counts are added is made anew
        bench = self.bench_for(machine)
        calls.places[0] = places_of(machine, machine.layers, machine.channel_cut, bench)
        for row, own in zip(calls.places[1:], self._accounts, strict=True):
            row[:] = places_of(machine, own.layers, own.channel_cut, own.bench)
            own.layers.channels[:] = machine.layers.channels
            own.layers.channel_base[:] = machine.layers.channel_base
        calls.shared[Shared.LEFT] = 0
        calls.shared[Shared.IS_STRICT] = int(strict)
        calls.shared[Shared.IS_ACTIVE] = 1
        for helper in self._helpers:
            helper.begin()
        begin = time.perf_counter()
        try:
            yield calls
        finally:
            calls.shared[Shared.IS_ACTIVE] = 0
            self._longest_seconds = max(self._longest_seconds, time.perf_counter() - begin)
            for row, own in zip(calls.places[1:], self._accounts, strict=True):
                add_accounts(machine, own, int(row[LOW_LAYER]), int(row[HIGH_LAYER]))
        self._calls = calls

    def _calls_for(self, machine: Machine) -> Calls:
        cores = machine.cores.size
        threads = self._threads if self._longest_seconds >= self.patience_seconds else 1
        threads = min(threads, cores)
        shape = (
            threads,
            *machine.scratchpad.shape,
            machine.layers.size,
            machine.channel_cut.shape[2],
        )
        if self._calls is None or self._shape != shape:
            for helper in self._helpers:
                helper.close()
            calls = make_calls(self._code, threads, cores)
            self._accounts = [no_accounts(machine) for _ in range(1, threads)]
            self._helpers = [_Helper(calls, thread) for thread in range(1, threads)]
            for helper in self._helpers:
                weakref.finalize(self, helper.close)
            self._shape, self._calls = shape, calls
        return self._calls


def make_calls(code: Apart, threads: int, cores: int) -> Calls:
    """Nothing to do yet."""
    return Calls(
        addresses=code.addresses,
        places=np.zeros((threads, PLACES), np.int64),
        tickets=np.zeros((cores, LINE), np.int64),
        done=np.zeros((threads, LINE), np.int64),
        shared=np.zeros((len(Shared), LINE), np.int64),
    )


def compile_follow() -> None:
    """Compile what follows courses, or read it from the cache."""
    nothing = np.zeros((0, 1, 2), np.int64)
    calls = make_calls(Apart(), 1, 1)
    follow(calls, nothing.reshape(-1), nothing)
    help_out(calls, ENGINE)


def no_accounts(machine: Machine) -> Accounts:
    """Accounts for a machine's layers in which nothing is counted yet."""
    layers = np.zeros_like(machine.layers)
    layers.first[:] = NEVER
    return Accounts(layers, np.zeros_like(machine.channel_cut), make_bench(machine))


def add_accounts(machine: Machine, own: Accounts, low: int, high: int) -> None:
    """Add what was counted in the layers from ``low`` to ``high``, and count from zero again.

    Sums, largest and smallest: they are the same whoever counted what, in whatever order.
    """
    if low > high:
        return
    mine, theirs = machine.layers[low : high + 1], own.layers[low : high + 1]
    mine.elements += theirs.elements
    mine.cut += theirs.cut
    np.maximum(mine.worst, theirs.worst, out=mine.worst)
    np.minimum(mine.first, theirs.first, out=mine.first)
    for account in (theirs.elements, theirs.cut, theirs.worst):
        account[...] = 0
    theirs.first[...] = NEVER
    begin = int(mine.channel_base[0])
    end = int(mine.channel_base[-1] + mine.channels[-1])
    counted = own.channel_cut[:, :, begin:end]
    machine.channel_cut[:, :, begin:end] += counted
    counted[...] = 0


class _Helper:
    """A thread that helps out while runs last."""

    def __init__(self, calls: Calls, thread: int) -> None:
        self._calls, self._thread = calls, thread
        # Unlike an event, it is whole wherever Ctrl-C comes, and behind a fork.
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        name = f"nmpsim values {thread}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def begin(self) -> None:
        """A run begins."""
        self._wanted.put(True)

    def close(self) -> None:
        """No further runs will come."""
        self._calls.shared[Shared.IS_ACTIVE] = 0
        self._wanted.put(False)

    def _serve(self) -> None:
        while self._wanted.get():
            while help_out(self._calls, self._thread):
                time.sleep(PAUSE_SECONDS)
