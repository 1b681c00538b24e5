"""Kinds of failures of a run, and whether a part of the program shows the same failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import attrs
import numpy as np

from nmpsim.analysis.matching import (
    StoredTensor,
    TensorMatching,
    add_program_facts,
    make_stored_tensor,
    match_tensors,
)
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Metadata
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import fail
from nmpsim.report.data import RunReport
from nmpsim.report.termination import TrapReport, ViolationReport

Coordinates = tuple[int, ...]
"""Coordinates of an element of a result."""


class _Failure:
    """Base class of failures, for those that are the same in every part of a program."""

    def iterate_failing_elements(self, report: RunReport) -> Iterator[Coordinates]:
        """Yield the coordinates of the failing elements of a result; none by default."""
        return iter(())

    def restrict(self, place: Sequence[int]) -> Self:
        """Return the failure restricted to one element; by default the failure itself."""
        return self


@attrs.frozen
class TrapFailure(_Failure):
    """Failure of a run that ends with a trap."""

    kind: str
    cause: int | None
    fault: str
    """Description of the invalid descriptor word in the message; empty for other traps."""

    @classmethod
    def from_trap(cls, trap: TrapReport) -> TrapFailure:
        """Return the failure of a run that ended with a trap."""
        return cls(trap.kind, trap.cause, _fault(trap))

    @property
    def text(self) -> str:
        """Kind of the trap and the invalid descriptor word, for messages."""
        return f"{self.kind.replace('_', ' ')} {self.fault}".rstrip()

    def occurs_in(self, report: RunReport) -> bool:
        """Return whether a run of a reduced program ended with the same trap."""
        trap = report.trap
        return trap is not None and TrapFailure.from_trap(trap) == self


@attrs.frozen
class ViolationFailure(_Failure):
    """Failure of a program that violates the contract of the instruction set."""

    category: str
    case: str
    operand: str
    instruction: str
    """Mnemonic of the violating instruction; empty for the host."""
    other: str
    place: tuple[int | None, ...] | None = None
    """Cores and addresses of the two instructions, or None for a recompiled part of the program."""

    @classmethod
    def from_violation(cls, violation: ViolationReport) -> ViolationFailure:
        """Return the failure for a violation, regardless of cores and addresses."""
        names = (_mnemonic(violation.instruction), _mnemonic(violation.other_instruction))
        return cls(violation.category, violation.case, violation.operand, *names)

    @classmethod
    def from_violation_at_instructions(cls, violation: ViolationReport) -> ViolationFailure:
        """Return the failure for a violation, restricted to its cores and addresses."""
        place = (violation.core, violation.pc, violation.other_core, violation.other_pc)
        return attrs.evolve(cls.from_violation(violation), place=place)

    @property
    def text(self) -> str:
        """Category, operand and instructions of the violation, for messages."""
        after = f" after {self.other}" if self.other else ""
        return f"{self.category}: {self.operand} of {self.instruction or 'the host'}{after}"

    def occurs_in(self, report: RunReport) -> bool:
        """Return whether the first violation in a run of a reduced program is this failure."""
        found = report.contract.violation
        if found is None:
            return False
        return self == (
            ViolationFailure.from_violation(found)
            if self.place is None
            else ViolationFailure.from_violation_at_instructions(found)
        )


@attrs.frozen(eq=False)
class DifferenceFailure(_Failure):
    """Failure of a layer whose result differs from the expected result."""

    layer: str
    expected: Array

    @property
    def text(self) -> str:
        """Sentence for messages: which layer differs from the reference."""
        return f"{self.layer} differs from the reference"

    def occurs_in(self, report: RunReport) -> bool:
        """Return whether the layer's result is wrong in a completed run of the reduced program."""
        if report.trap is not None:
            return False
        return any(
            _name(key) == self.layer and not _same(values, self.expected)
            for key, values in report.layer_outputs.items()
        )

    def iterate_failing_elements(self, report: RunReport) -> Iterator[Coordinates]:
        """Yield the coordinates of the layer's wrong elements."""
        values = next(v for k, v in report.layer_outputs.items() if _name(k) == self.layer)
        for place in np.argwhere(values != self.expected.reshape(values.shape)):
            yield tuple(place.tolist())

    def restrict(self, place: Sequence[int]) -> DifferenceFailure:
        """Return the failure restricted to one element of the result."""
        return DifferenceFailure(self.layer, self.expected[tuple(slice(i, i + 1) for i in place)])


@attrs.frozen
class SaturationFailure(_Failure):
    """Failure of a layer with saturated values."""

    layer: str

    @property
    def text(self) -> str:
        """Sentence for messages: which layer saturates."""
        return f"{self.layer} saturates"

    def occurs_in(self, report: RunReport) -> bool:
        """Return whether the layer saturates in a completed run of the reduced program."""
        return report.trap is None and any(
            layer.name == self.layer and layer.saturated > 0 for layer in report.layers
        )

    def iterate_failing_elements(self, report: RunReport) -> Iterator[Coordinates]:
        """Yield the coordinates of the first saturated element of each stage and side."""
        return (
            one.first for layer in report.layers for one in layer.saturation if not one.is_requested
        )


Failure = TrapFailure | ViolationFailure | DifferenceFailure | SaturationFailure


def add_program_outputs(report: RunReport, layers: Sequence[Layer]) -> RunReport:
    """Return a report that also contains the program's outputs as outputs of their layers.

    A layer without a closing barrier has no saved output otherwise.
    """
    if report.trap is not None:
        return report
    last = {
        make_layer_key(layer): report.outputs[layer.output.name]
        for layer in layers
        if make_layer_key(layer) not in report.layer_outputs and layer.output.name in report.outputs
    }
    return attrs.evolve(report, layer_outputs={**report.layer_outputs, **last})


def find_first_difference(
    report: RunReport, metadata: Metadata, matching: TensorMatching
) -> DifferenceFailure | None:
    """Return the failure of the first layer that differs from the reference, or None if equal.

    Parameters
    ----------
    report
        Report of the run, with outputs of layers.
    metadata
        Metadata of the program.
    matching
        Outputs of the layers, matched with the reference by :func:`match_layer_outputs`.

    Returns
    -------
    DifferenceFailure or None
        None if no output differs.

    Raises
    ------
    UserError
        DIFF001 if the reference has no result to compare with.
    """
    pairs = [
        (pair.tensor.name, pair.tensor.load().array.reshape(pair.tensor.shape), expected)
        for pair in matching.pairs
        if (expected := matching.read_expected(pair)) is not None
        and expected.dtype == pair.tensor.dtype
    ]
    if (matching.pairs or matching.unmatched) and not pairs:
        layer = metadata.layers[0]
        references = [*(pair.reference for pair in matching.pairs), *matching.unmatched_references]
        names = ", ".join(f"{one.name} ({one.dtype or 'unknown type'})" for one in references[:4])
        raise fail(
            "DIFF001",
            "the reference contains no layer of the run with a matching type",
            found=f"the layers {names}" if names else "no layers",
            expected=f"a layer of the run, such as {layer.name} of type {layer.output.elem}",
            hint="Save results by layer with `nmpsim run --save-layers`.",
        )
    wrong = ((n, v, e) for n, v, e in pairs if not _same(v, e))
    return next((DifferenceFailure(n, e) for n, _, e in wrong), None)


def match_layer_outputs(
    report: RunReport,
    metadata: Metadata,
    references: Sequence[StoredTensor],
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
) -> TensorMatching:
    """Match the outputs of a run's layers with the tensors of a reference.

    Parameters
    ----------
    report
        Report of the run, with outputs of layers.
    metadata
        Metadata of the program.
    references, names, layout
        As for :func:`~nmpsim.analysis.matching.match_tensors`.
    """
    outputs = report.layer_outputs
    done = [layer for layer in metadata.layers if make_layer_key(layer) in outputs]
    tensors = [make_stored_tensor(layer.name, outputs[make_layer_key(layer)]) for layer in done]
    return match_tensors(add_program_facts(tensors, metadata), references, names, layout)


def _name(key: str) -> str:
    """Return the instruction's name from the key of a saved layer."""
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
    """Return ``WORD is VALUE`` without the value, because addresses differ in a part."""
    if trap.kind != "trap":
        return ""
    words = trap.message.partition("): ")[2].split(", ")
    return ", ".join(word.split(" is ")[0] for word in words)
