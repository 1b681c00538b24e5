"""What is wrong with a run, in a way that can be asked of a part of its program too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.core.run import layer_key
from nmpsim.diagnostics import fail
from nmpsim.report.data import RunReport
from nmpsim.report.ended import TrapReport, ViolationReport

Array = npt.NDArray[Any]
Coordinates = tuple[int, ...]
"""Coordinates of an element of a result."""


@attrs.frozen
class Traps:
    """The run does not reach its end."""

    kind: str
    cause: int | None
    fault: str
    """What the message says of the descriptor's word at fault; empty for other traps."""

    @classmethod
    def of(cls, trap: TrapReport) -> Traps:
        """The failure of a run that ended with this trap."""
        return cls(trap.kind, trap.cause, _fault(trap))

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.kind.replace('_', ' ')} {self.fault}".rstrip()

    def happens(self, report: RunReport) -> bool:
        """True if a run of a part ends in the same way."""
        trap = report.trap
        return trap is not None and Traps.of(trap) == self

    def places(self, report: RunReport) -> Iterator[Coordinates]:
        """None: no element of a result shows it."""
        return iter(())

    def at(self, place: Sequence[int]) -> Traps:
        """Itself: it is the same for every part."""
        return self


@attrs.frozen
class Violates:
    """The program breaks the contract of the instruction set: it has this hazard."""

    category: str
    case: str
    operand: str
    instruction: str
    """Mnemonic; empty for the host. So is ``other``, where there is no earlier one."""
    other: str
    place: tuple[int | None, ...] | None = None
    """Cores and addresses of both; None for a part that is compiled again."""

    @classmethod
    def of(cls, found: ViolationReport) -> Violates:
        """The failure of a run that this ended."""
        names = (_mnemonic(found.instruction), _mnemonic(found.other_instruction))
        return cls(found.category, found.case, found.operand, *names)

    @classmethod
    def there(cls, found: ViolationReport) -> Violates:
        """The same by the same instructions of the same cores."""
        place = (found.core, found.pc, found.other_core, found.other_pc)
        return attrs.evolve(cls.of(found), place=place)

    @property
    def text(self) -> str:
        """In words."""
        after = f" after {self.other}" if self.other else ""
        return f"{self.category}: {self.operand} of {self.instruction or 'the host'}{after}"

    def happens(self, report: RunReport) -> bool:
        """True if the first violation of a run of a part is this one."""
        found = report.contract.violation
        if found is None:
            return False
        return self == (Violates.of(found) if self.place is None else Violates.there(found))

    def places(self, report: RunReport) -> Iterator[Coordinates]:
        """None: no element of a result shows it."""
        return iter(())

    def at(self, place: Sequence[int]) -> Violates:
        """Itself: it is the same for every part."""
        return self


@attrs.frozen(eq=False)
class Differs:
    """A layer's result is not what it should be."""

    layer: str
    expected: Array

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.layer} differs from the reference"

    def happens(self, report: RunReport) -> bool:
        """True if the layer's result is wrong in a run of a part that reaches its end."""
        if report.trap is not None:
            return False
        return any(
            _name(key) == self.layer and not _same(values, self.expected)
            for key, values in report.layer_outputs.items()
        )

    def places(self, report: RunReport) -> Iterator[Coordinates]:
        """Coordinates of the layer's wrong elements."""
        values = next(v for k, v in report.layer_outputs.items() if _name(k) == self.layer)
        for place in np.argwhere(values != self.expected.reshape(values.shape)):
            yield tuple(place.tolist())

    def at(self, place: Sequence[int]) -> Differs:
        """The same of one element."""
        return Differs(self.layer, self.expected[tuple(slice(i, i + 1) for i in place)])


@attrs.frozen
class Saturates:
    """Values of a layer saturate."""

    layer: str

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.layer} saturates"

    def happens(self, report: RunReport) -> bool:
        """True if the layer saturates in a run of a part that reaches its end."""
        return report.trap is None and any(
            layer.name == self.layer and layer.saturated > 0 for layer in report.layers
        )

    def places(self, report: RunReport) -> Iterator[Coordinates]:
        """Coordinates of saturated values of a part's only layer."""
        return (one.first for layer in report.layers for one in layer.saturation if not one.wanted)

    def at(self, place: Sequence[int]) -> Saturates:
        """Itself: a part may be any."""
        return self


Failure = Traps | Violates | Differs | Saturates


def with_last_results(report: RunReport, layers: Sequence[Layer]) -> RunReport:
    """The report with the outputs of layers that no barrier ends, where they are the program's."""
    if report.trap is not None:
        return report
    last = {
        layer_key(layer): report.outputs[layer.output.name]
        for layer in layers
        if layer_key(layer) not in report.layer_outputs and layer.output.name in report.outputs
    }
    return attrs.evolve(report, layer_outputs={**report.layer_outputs, **last})


def first_difference(
    report: RunReport, layers: Sequence[Layer], reference: Mapping[str, Array]
) -> Differs | None:
    """The first layer, in order of the run, that is not as ``reference`` has it by name.

    Raises DIFF001 if the reference has no result to compare with.
    """
    done = [layer for layer in layers if layer_key(layer) in report.layer_outputs]
    pairs = [
        (layer.name, report.layer_outputs[layer_key(layer)], reference[layer.name])
        for layer in done
        if layer.name in reference
    ]
    alike = [(n, v, e) for n, v, e in pairs if v.size == e.size and v.dtype == e.dtype]
    if done and not alike:
        raise fail(
            "DIFF001",
            "the reference has no result that one of the run's layers could be compared with",
            found=", ".join(list(reference)[:4]) or "nothing",
            expected=f"{done[0].name}, {done[0].output.elem}, or another layer's",
            hint="`nmpsim run --save-layers` writes results under the names of layers",
        )
    wrong = ((n, v, e) for n, v, e in alike if not _same(v, e))
    return next((Differs(n, e.reshape(v.shape)) for n, v, e in wrong), None)


def _name(key: str) -> str:
    """Of the instruction, from the key of a saved layer."""
    return key.partition(":")[2]


def _mnemonic(instruction: str | None) -> str:
    return (instruction or "").partition(" ")[0]


def _same(values: Array, expected: Array) -> bool:
    if values.size != expected.size or values.dtype != expected.dtype:
        return False
    return np.array_equal(
        values.reshape(-1), expected.reshape(-1), equal_nan=values.dtype.kind == "f"
    )


def _fault(trap: TrapReport) -> str:
    """``WORD is VALUE`` without the value: a part has its tensors at other addresses."""
    if trap.kind != "trap":
        return ""
    words = trap.message.partition("): ")[2].split(", ")
    return ", ".join(word.split(" is ")[0] for word in words)
