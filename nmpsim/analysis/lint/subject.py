"""What the rules look at: a program and whatever else was given about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import numpy.typing as npt

from nmpsim.analysis.lint.biases import Bias, bias_of
from nmpsim.analysis.weighted import WEIGHTED
from nmpsim.compiler.operations import Operation, View
from nmpsim.compiler.resolve import place_of, resolve
from nmpsim.config import DeviceConfig, default_device
from nmpsim.diagnostics import Place
from nmpsim.lir.names import display_names
from nmpsim.lir.nodes import Module
from nmpsim.quantization import Range

Array: TypeAlias = npt.NDArray[Any]


@attrs.frozen(eq=False)
class OriginalBias:
    """A bias as it was before somebody changed its type."""

    payload: Array | None
    """None if only that it is unchanged is known, by its digest."""
    scales: Array | None
    """float64, one or one a channel; None if its type is not known."""
    offsets: Array | None
    """int64, likewise."""


@attrs.define(eq=False, slots=False, frozen=True)
class Subject:
    """A program under examination; what was not given is None."""

    module: Module
    numerics: str
    """The profile that it is to run with."""
    device: DeviceConfig = attrs.field(factory=default_device)
    """What it is to run on."""
    layer_numerics: Mapping[str, str] = attrs.field(factory=dict)
    """Instruction -> its profile, where a bundle has another for it."""
    layer_display_names: Mapping[str, str] = attrs.field(factory=dict)
    """Instruction -> display name of its layer, where a bundle has it."""
    float_weights: Mapping[str, Array] | None = None
    """Float arrays by the names of the float model."""
    original: Mapping[str, OriginalBias] | None = None
    """By the names of the constants."""
    ranges: Mapping[str, Range] | None = None
    """Glow's profile: what each result took, by its name."""
    printed_only: frozenset[str] | None = None
    """Tensors of whose scale nine printed decimals are all that is known; None if the module was
    not read from text."""
    snapped: frozenset[str] = frozenset()
    """Tensors whose scale is the power of two that its print was taken for."""
    warnings: tuple[str, ...] = ()
    """Of the front end that read a model."""

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Every instruction that computes, in order."""
        return resolve(self.module)[1]

    @cached_property
    def display_names(self) -> Mapping[str, str]:
        """Full name of an instruction or constant -> the name that people read."""
        shown: dict[str, str] = {}
        for names in ([weight.name for weight in self.module.weights], self._instruction_names):
            shown |= dict(zip(names, display_names(names), strict=True))
        return {**shown, **self.layer_display_names}

    @property
    def _instruction_names(self) -> list[str]:
        return [op.instruction.name for op in self.operations]

    @cached_property
    def biases(self) -> tuple[Bias, ...]:
        """The bias of each quantized layer with weights, where its values are known."""
        found = (
            bias_of(self.module, op) for op in self.operations if op.instruction.opcode in WEIGHTED
        )
        return tuple(bias for bias in found if bias is not None)

    @cached_property
    def has_constants(self) -> bool:
        """Whether the values of the constants are known."""
        return bool(self.module.constants) or not any(w.constant for w in self.module.weights)

    def numerics_of(self, op: Operation) -> str:
        """The profile that an operation is to run with."""
        return self.layer_numerics.get(op.instruction.name, self.numerics)

    def place_of(self, op: Operation, tensor: View | None = None) -> Place:
        """The line of an instruction, or of the declaration of a constant."""
        if tensor is not None:
            for weight in self.module.weights:
                if weight.name == tensor.buffer.name:
                    return weight.span.place(self.module.file)
        return place_of(op.instruction, self.module.file)
