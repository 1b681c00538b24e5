"""Requantization of biases to the scale of the result, as required by the NMP's library.

The bias of each layer with weights is dequantized and quantized again, in its own element type,
with the scale and offset of the layer's result.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.lir.names import UniqueNames
from nmpsim.lir.nodes import Module, TensorType, WeightVar, make_quantized_type
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.report.fields import AT_END, Real

_BIAS, _SCALES, _OFFSETS = 3, 6, 7
"""Indices of operands; a channelwise convolution has scales and offsets of its bias."""


@attrs.frozen
class RescaledBias:
    """Bias that was requantized to a new scale, with the resulting error."""

    layer: Annotated[str, "name of the instruction"]
    number: int
    bias: Annotated[str, "name of the constant before"]
    renamed: Annotated[str, "its name now; another one if the old constant has other users"]
    elem: str
    old_scale: Annotated[float, "the first channel's, where each has its own"]
    new_scale: float
    new_offset: int
    elements: int
    saturated: Annotated[int, "elements that the new type cannot hold"]
    largest_error: Annotated[Real, "largest difference of real values, new less old"]

    @property
    def largest_error_steps(self) -> Annotated[Real, "the same in steps of the result", AT_END]:
        """Largest error divided by the scale of the result."""
        return self.largest_error / self.new_scale


def rescale_bias(module: Module) -> tuple[Module, tuple[RescaledBias, ...]]:
    """Requantize biases to the scale of their layer's result; return the module and the changes.

    Constants must be attached. Float layers and computed biases are not changed.
    """
    rewriter = _Rewriter(module)
    _, operations = resolve_operands(module)
    reports = tuple(rewriter.rewrite(op) for op in operations if _concerns(op))
    return rewriter.module(), reports


def _concerns(op: Operation) -> bool:
    if op.kind not in WEIGHTED:
        return False
    target, bias = op.operands[0], op.operands[_BIAS]
    quantized = target.type.quant is not None and bias.type.quant is not None
    return quantized and bias.buffer.constant


class _Rewriter(UniqueNames):
    """A module whose biases are being replaced."""

    replaces_suffix = True

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._module = module
        self._uses = Counter(o.name for one in module.instructions for o in one.operands)
        self._weights = {weight.name: weight for weight in module.weights}
        for name in (*self._weights, *(one.name for one in module.instructions)):
            self.make_unique(name)
        self._constants: dict[str, Array] = dict(module.constants)
        self._instructions = {i.number: i for i in module.instructions}

    def module(self) -> Module:
        """Return the current module, without constants that are not used any more."""
        weights = tuple(self._weights.values())
        return attrs.evolve(
            self._module,
            weights=weights,
            instructions=tuple(self._instructions.values()),
            constants={w.name: self._constants[w.name] for w in weights if w.constant},
        )

    def rewrite(self, op: Operation) -> RescaledBias:
        """Requantize the bias of a layer; a bias that has the right scale is not changed."""
        target, bias = op.operands[0], op.operands[_BIAS]
        scales, offsets = self._parameters(op, bias)
        old = bias.get_constant_values(self._module.constants)
        reals = scales * (old.astype(np.int64) - offsets).astype(np.float32)
        name, exact, new = bias.name, old.astype(np.int64), old
        if np.any(scales != np.float32(target.scale)) or np.any(offsets != target.offset):
            exact = quantize_reals(reals, HostTensor(old, target.scale, target.offset))
            limits = np.iinfo(old.dtype)
            new = np.clip(exact, limits.min, limits.max).astype(old.dtype)
            own = make_quantized_type(bias.type.elem, (), target.scale, target.offset)
            type_ = attrs.evolve(bias.type, quant=own.quant)
            name = self._replace(op, _BIAS, bias, new, type_)
            if len(op.operands) > _OFFSETS:
                scales_now = np.full(new.size, target.scale, np.float32)
                offsets_now = np.full(new.size, target.offset, np.int32)
                for place, values in ((_SCALES, scales_now), (_OFFSETS, offsets_now)):
                    view = op.operands[place]
                    self._replace(op, place, view, values, view.type)
        errors = _reals(new, target.scale, target.offset) - _reals(old, scales, offsets)
        return RescaledBias(
            layer=op.instruction.name,
            number=op.instruction.number,
            bias=bias.name,
            renamed=name,
            elem=bias.type.elem,
            old_scale=float(scales[0]),
            new_scale=target.scale,
            new_offset=target.offset,
            elements=int(new.size),
            saturated=int(np.count_nonzero(exact != new)),
            largest_error=float(np.abs(errors).max(initial=0.0)),
        )

    def _parameters(self, op: Operation, bias: BufferView) -> tuple[Array, Array]:
        """Return the current scales and offsets of the bias: one, or one per channel."""
        if len(op.operands) > _OFFSETS:
            scales, offsets = (
                op.operands[index].get_constant_values(self._module.constants)
                for index in (_SCALES, _OFFSETS)
            )
            return scales.astype(np.float32), offsets.astype(np.int64)
        return np.full(1, bias.scale, np.float32), np.full(1, bias.offset, np.int64)

    def _replace(
        self, op: Operation, place: int, old: BufferView, values: Array, type: TensorType
    ) -> str:
        """Replace an operand by a new constant, with the old name if nothing else uses that."""
        name, origin = old.name, self._weights.get(old.name)
        span = op.instruction.span if origin is None else origin.span
        self._uses[name] -= 1
        if origin is None or self._uses[name]:
            name = self.make_unique(name)
        self._uses[name] = 1
        values.flags.writeable = False
        self._weights[name] = WeightVar(name, type, constant=True, span=span)
        self._constants[name] = values
        instruction = self._instructions[op.instruction.number]
        operands = list(instruction.operands)
        operands[place] = attrs.evolve(operands[place], name=name)
        self._instructions[instruction.number] = attrs.evolve(instruction, operands=tuple(operands))
        return name


def _reals(values: Array, scale: Any, offset: Any) -> npt.NDArray[np.float64]:
    """Return the exact real values of quantized values."""
    exact: npt.NDArray[np.float64] = np.float64(scale) * (values.astype(np.int64) - offset)
    return exact
