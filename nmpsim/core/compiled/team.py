"""The threads that calculate values: the engine's own, and helpers that are there while it runs."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.apart import Apart
from nmpsim.core.compiled.pending import (
    ACTIVE,
    ITEM_WORDS,
    LINE,
    ROOM,
    STATE_WORDS,
    Mark,
    help_out,
)
from nmpsim.core.compiled.perform import IS_PLAIN
from nmpsim.core.compiled.reach import BOX_WORDS, BOXES, KINDS
from nmpsim.core.compiled.workplace import HIGH_LAYER, LOW_LAYER, PLACES, places_of
from nmpsim.core.state import NEVER, Int64s, Machine

PAUSE_SECONDS = 50e-6
"""How long a helper sleeps that has found nothing to do for a while."""
PATIENCE_SECONDS = 5e-3
"""How long a piece of a run must last for helpers to be called in: shorter ones end before them."""


class Calls(NamedTuple):
    """What the engine's loop needs to have values calculated."""

    addresses: Int64s
    """[instructions] of what is compiled; 0 for what was not needed yet."""
    prepare: int
    """Address of a function that compiles what an instruction needs."""
    places: Int64s
    """[threads, PLACES] where memory is; see :class:`~nmpsim.core.compiled.workplace.At`."""
    items: Int64s
    """[cores, ROOM, ITEM_WORDS] each core's list, instruction i at i % ROOM."""
    marks: Int64s
    """[cores, Mark, LINE] how far each list is; the first number of each line."""
    boxes: Int64s
    """[cores, KINDS, BOXES, BOX_WORDS] what transfers on the lists touch in DRAM."""
    box: Int64s
    """[BOX_WORDS] room to work in."""
    state: Int64s
    """[STATE_WORDS] see ``ACTIVE`` and its neighbours."""


class Accounts(NamedTuple):
    """What a helper counts: layers and cut values, as a machine has them."""

    layers: Any
    channel_cut: Int64s


class Team:
    """The engine's thread and its helpers, for one machine at a time."""

    def __init__(self, code: Apart, threads: int) -> None:
        self._code = code
        self._threads = 1 if IS_PLAIN else threads
        self.patience_seconds = PATIENCE_SECONDS
        self._longest_seconds = 0.0
        self._calls: Calls | None = None
        self._shape: tuple[int, ...] = ()
        self._accounts: list[Accounts] = []
        self._helpers: list[_Helper] = []

    @contextmanager
    def at_work(self, machine: Machine) -> Iterator[Calls]:
        """The helpers do what comes up; behind it, all counts are the machine's."""
        calls = self._calls_for(machine)
        calls.places[0] = places_of(machine, machine.layers, machine.channel_cut)
        for row, own in zip(calls.places[1:], self._accounts, strict=True):
            row[:] = places_of(machine, own.layers, own.channel_cut)
            own.layers.channels[:] = machine.layers.channels
            own.layers.channel_base[:] = machine.layers.channel_base
        calls.state[ACTIVE] = 1
        for helper in self._helpers:
            helper.begin()
        begin = time.perf_counter() - self._code.seconds
        try:
            yield calls
        finally:
            calls.state[ACTIVE] = 0
            seconds = time.perf_counter() - self._code.seconds - begin
            self._longest_seconds = max(self._longest_seconds, seconds)
            for helper in self._helpers:
                helper.end()
            for row, own in zip(calls.places[1:], self._accounts, strict=True):
                add_accounts(machine, own, int(row[LOW_LAYER]), int(row[HIGH_LAYER]))

    def _calls_for(self, machine: Machine) -> Calls:
        cores = machine.cores.size
        threads = self._threads if self._longest_seconds >= self.patience_seconds else 1
        threads = min(threads, cores)
        shape = (threads, cores, machine.layers.size, machine.channel_cut.shape[2])
        if self._calls is None or self._shape != shape:
            for helper in self._helpers:
                helper.close()
            self._shape = shape
            self._calls = calls = make_calls(self._code, threads, cores)
            self._accounts = [no_accounts(machine) for _ in range(1, threads)]
            self._helpers = [_Helper(calls, thread) for thread in range(1, threads)]
            for helper in self._helpers:
                weakref.finalize(self, helper.close)
        return self._calls


def make_calls(code: Apart, threads: int, cores: int) -> Calls:
    """Empty lists; without helpers there is none."""
    listed = cores if threads > 1 else 0
    return Calls(
        addresses=code.addresses,
        prepare=code.prepare,
        places=np.zeros((threads, PLACES), np.int64),
        items=np.zeros((listed, ROOM, ITEM_WORDS), np.int64),
        marks=np.zeros((listed, len(Mark), LINE), np.int64),
        boxes=np.zeros((listed, KINDS, BOXES, BOX_WORDS), np.int64),
        box=np.zeros(BOX_WORDS, np.int64),
        state=np.zeros(STATE_WORDS, np.int64),
    )


def no_accounts(machine: Machine) -> Accounts:
    """Accounts for a machine's layers in which nothing is counted yet."""
    layers = np.zeros_like(machine.layers)
    layers.first[:] = NEVER
    return Accounts(layers, np.zeros_like(machine.channel_cut))


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
        self._wanted = threading.Event()
        self._closed = False
        name = f"nmpsim values {thread}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def begin(self) -> None:
        """A run begins."""
        self._wanted.set()

    def end(self) -> None:
        """It is over."""
        self._wanted.clear()

    def close(self) -> None:
        """No further runs will come."""
        self._closed = True
        self._wanted.set()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed:
                return
            while help_out(self._calls, self._thread):
                time.sleep(PAUSE_SECONDS)
