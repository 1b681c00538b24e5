"""How many inferences a device does in a time, which is not how long it takes for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from nmpsim.records import frozen
from nmpsim.report.fields import Before, Count, Share


@frozen
class Throughput:
    """Of runs of a program one after the other, each on what the one before left."""

    batch: Annotated[
        Count,
        "inferences of one run: the first dimension, if all inputs and outputs have the same one"
        " and at least another; otherwise 1",
    ]
    run_cycles: Annotated[
        tuple[Count, ...],
        "cycles of each run, one after the other; the first one is from rest, as `cycles` of the"
        " report",
    ]
    clock_mhz: Annotated[Share, "`cores_clock_mhz`"]

    @property
    def cycles_per_inference(
        self,
    ) -> Annotated[
        Share,
        "mean of all runs but the first, in steady state; of a single run its own; divided by"
        " `batch`",
        Before("clock_mhz"),
    ]:
        """Cycles from the begin of one inference to that of the next one, on average."""
        later = self.run_cycles[1:] or self.run_cycles
        return sum(later) / len(later) / self.batch

    @property
    def inferences_per_second(
        self,
    ) -> Annotated[
        Share | None,
        "`clock_mhz` / `cycles_per_inference`; null if they take no cycles",
        Before(""),
    ]:
        """Inferences a second; None if they take no cycles."""
        cycles = self.cycles_per_inference
        return self.clock_mhz * 1e6 / cycles if cycles else None


def batch_of(shapes: Sequence[Sequence[int]]) -> int:
    """Inferences of one run of a program whose inputs and outputs have these shapes."""
    sizes = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return max(sizes.pop(), 1) if len(sizes) == 1 else 1
