"""Runs that repeat another one: of a proved and recorded program nothing but values differs.

Timing, and which bytes are written, are those of every run, and what a run reads it has written
before (docs/isa.md, what is undefined). So a next run finds the machine as the last one left it,
clears what was counted of values, and computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.account import Account, run_report
from nmpsim.core.collect import counters_of, with_values
from nmpsim.core.engine import Engine, Replayed
from nmpsim.core.host import HostClip, prepared_step, read_tensor
from nmpsim.core.limits import Limits
from nmpsim.core.run import Clock, LayersDone, Wanted
from nmpsim.core.state import NEVER, Machine, clear_counts
from nmpsim.report.data import RunReport
from nmpsim.report.ended import ContractReport

_Step = Callable[[Wanted, Callable[[int], None]], HostClip | None]
"""Does a step of the bundle once more; it tells which layers are done, as engines do."""


class Repeats:
    """The next runs of a bundle on its machine, after one that came to its end."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        config: DeviceConfig,
        engine: Engine,
        limits: Limits,
        account: Account,
        replayed: Sequence[Replayed],
    ) -> None:
        """``replayed`` is what the engine told of each part on the device."""
        self._bundle, self._machine = bundle, machine
        self._engine, self._limits = engine, limits
        self._account = account
        self._counted = counters_of(machine, config)
        metadata, told = bundle.metadata, iter(replayed)
        self._inputs = {one.name: read_tensor(machine, one) for one in metadata.inputs}
        self._steps = [(step, self._prepared(step, told)) for step in metadata.steps]

    def serves(self, wanted: Wanted) -> bool:
        """True if a run is one of them."""
        is_plain = wanted.work is None and not wanted.save_layers
        return is_plain and wanted.strict and wanted.limits == self._limits

    def report(
        self, values: Mapping[str, npt.NDArray[Any]], wanted: Wanted, clock: Clock
    ) -> RunReport:
        """Run on other values, in the inputs' own types; where it raises, all must begin again."""
        self._engine.begin()
        clear_counts(self._machine)
        clock.start()
        for name, memory in self._inputs.items():
            memory[...] = values[name]
        done = LayersDone(self._bundle.metadata.layers, wanted.progress)
        account = attrs.evolve(self._account, clips={})
        for step, do in self._steps:
            clip = do(wanted, done.listener(step, clock))
            if clip is not None:
                account.clips.update(dict.fromkeys(step.layers, clip))
            if step.kind == "host":
                clock.check()
        return run_report(
            self._bundle,
            self._machine,
            with_values(self._counted, self._machine),
            account,
            engine=self._engine.name,
            host_seconds=clock.seconds(),
            trap=None,
            contract=ContractReport("proved"),
            layer_outputs={},
        )

    def _prepared(self, step: ProgramStep, told: Iterator[Replayed]) -> _Step:
        if step.kind == "device":
            again = next(told).again

            def on_device(wanted: Wanted, reached: Callable[[int], None]) -> None:
                again(reached, wanted.whole_layers)
                reached(NEVER)

            return on_device
        execute = prepared_step(self._machine, step)

        def on_host(_: Wanted, reached: Callable[[int], None]) -> HostClip | None:
            clip = execute()
            reached(NEVER)
            return clip

        return on_host
