"""One layer as a program of its own, which can be changed and executed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.program import Program
from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import dequantize, execute_real
from nmpsim.kernels.hostops.windows import SlidingWindow
from nmpsim.lir.nodes import Instruction, Quantization, TensorType
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.verify import verify

_LABELS = {
    "Dest": "result",
    "Src": "input",
    "Batch": "input",
    "LHS": "first input",
    "RHS": "second input",
    "Slice": "second input",
    "Filter": "weights",
}
"""Role of an operand -> its label in descriptions, where it is not the role."""
SAMPLED_WINDOWS = 16
"""Number of windows on which changes are tried first."""


@attrs.frozen(eq=False)
class IsolatedLayer:
    """Layer as a program of its own, with the values of its inputs."""

    program: Program
    inputs: Arrays
    """Stored values of the inputs by tensor name."""
    convert_result: Callable[[Array], Array] | None = None
    """Function that is applied to the stored result."""
    restore_result: Callable[[Array], Array] | None = None
    """Inverse of ``convert_result``; None if it has none."""
    clip: tuple[int, int] | None = None
    """Range to which results are clipped besides by activations; None for that of the type."""

    @property
    def operation(self) -> Instruction:
        """First instruction of the layer; the instructions after it are activations."""
        return self.program.module.instructions[0]

    @property
    def kind(self) -> OpcodeKind:
        """Opcode kind of the layer's first instruction, from the opcode table."""
        return OPCODES[self.operation.opcode].kind

    @property
    def output(self) -> str:
        """Name of the tensor with the layer's result."""
        return self.program.module.instructions[-1].operands[0].name

    def has_same_program(self, other: IsolatedLayer) -> bool:
        """Return whether the layer shares its program and its inputs with ``other``."""
        return self.program is other.program and self.inputs is other.inputs

    def get_content(self) -> object:
        """Return an object that is equal for layers with equal programs, values and conversions."""
        module = self.program.module
        arrays = {**module.constants, **self.inputs}
        values = tuple((name, array.shape, array.tobytes()) for name, array in arrays.items())
        program = module.weights, repr(module.instructions), self.program.numerics
        return program, values, self.convert_result

    def get_attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the operation, or ``default`` if it is missing."""
        return self.operation.attributes.get(name, default)

    def find_operand(self, *roles: str) -> str | None:
        """Return the tensor name of the first role that exists, or None if no role exists."""
        row = OPCODES[self.operation.opcode].operands
        names = {
            role.name: operand.name
            for role, operand in zip(row, self.operation.operands, strict=False)
        }
        return next((names[role] for role in roles if role in names), None)

    def find_constant(self, *roles: str) -> str | None:
        """Return the tensor name of the first role that exists, or None if it is no constant."""
        name = self.find_operand(*roles)
        return name if name in self.program.module.constants else None

    def get_output_axis(self) -> int:
        """Return the axis of the weights that contains the output channels."""
        return 1 if self.operation.opcode == "fullyconnected" else 0

    def list_operands(self) -> list[tuple[str, str]]:
        """Return a (label, tensor name) pair for the result and for each operand that is read."""
        row = OPCODES[self.operation.opcode].operands
        return [
            (_LABELS.get(role.name, role.name.lower()), operand.name if index else self.output)
            for index, (role, operand) in enumerate(zip(row, self.operation.operands, strict=False))
        ]

    def has_scale(self, name: str) -> bool:
        """Return whether a tensor's type contains its scale, instead of a separate scale table."""
        quant, row = self.get_type(name).quant, OPCODES[self.operation.opcode].operands
        return (
            quant is not None
            and quant.scale != 0
            and not any(role.scales and self.find_operand(role.name) == name for role in row)
        )

    def get_type(self, name: str) -> TensorType:
        """Return the LIR type of the tensor ``name``."""
        return next(one.type for one in self.program.module.weights if one.name == name)

    def get_values(self, name: str) -> Array:
        """Return the stored values of a constant or an input."""
        constants = self.program.module.constants
        return constants[name] if name in constants else self.inputs[name]

    def replace_values(self, values: Arrays) -> IsolatedLayer:
        """Return a copy with new stored values of constants or inputs; shapes may change."""
        module, inputs = self.program.module, self.inputs
        constants = {name: values.get(name, array) for name, array in module.constants.items()}
        weights = tuple(
            attrs.evolve(one, type=_reshape(one.type, values[one.name].shape))
            if one.name in values
            else one
            for one in module.weights
        )
        return self._evolve(
            {name: values.get(name, array) for name, array in inputs.items()},
            constants=constants,
            weights=weights,
        )

    def replace_attributes(self, **attributes: Any) -> IsolatedLayer:
        """Return a copy in which ``attributes`` replace attributes of the operation."""
        first, *others = self.program.module.instructions
        changed = attrs.evolve(first, attributes={**first.attributes, **attributes})
        return self._evolve(instructions=(changed, *others))

    def replace_operation(self, opcode: str, attributes: Mapping[str, Any]) -> IsolatedLayer:
        """Return a copy with a new opcode and new attributes for the same operands."""
        first, *others = self.program.module.instructions
        changed = attrs.evolve(first, opcode=opcode, attributes=attributes)
        return self._evolve(instructions=(changed, *others))

    def replace_conversion(
        self,
        function: Callable[[Array], Array],
        inverse: Callable[[Array], Array] | None = None,
    ) -> IsolatedLayer:
        """Return a copy whose stored result ``function`` converts and ``inverse`` restores."""
        return attrs.evolve(self, convert_result=function, restore_result=inverse)

    def reorder_result(self, reorder: Callable[[Array], Array]) -> IsolatedLayer:
        """Return a copy that reorders the elements of its result by ``reorder``."""

        def restore(values: Array) -> Array:
            order = reorder(np.arange(values.size).reshape(values.shape))
            restored = np.empty_like(values)
            restored.reshape(-1)[order.reshape(-1)] = values.reshape(-1)
            return restored

        return self.replace_conversion(reorder, restore)

    def replace_quantization(
        self, name: str, scale: float | None = None, offset: int | None = None
    ) -> IsolatedLayer:
        """Return a copy with a new scale or offset of a tensor; None keeps the current value.

        All results of the layer keep a common scale and offset.
        """
        quant = self.get_type(name).quant
        assert quant is not None
        results = {one.operands[0].name for one in self.program.module.instructions}
        changed = {name} if name not in results else results
        weights = tuple(
            attrs.evolve(one, type=_requantize(one.type, scale, offset))
            if one.name in changed and one.type.quant == quant
            else one
            for one in self.program.module.weights
        )
        return self._evolve(weights=weights)

    def _evolve(self, inputs: Arrays | None = None, **changes: Any) -> IsolatedLayer:
        module = attrs.evolve(self.program.module, **changes)
        return attrs.evolve(
            self,
            program=attrs.evolve(self.program, module=module),
            inputs=self.inputs if inputs is None else inputs,
        )

    def remove_activations(self) -> IsolatedLayer:
        """Return a copy of the layer's first operation without any activation."""
        first = self.program.module.instructions[0]
        target = attrs.evolve(first.operands[0], name=self.output)
        attributes = {k: v for k, v in first.attributes.items() if "FusedActivation" not in k}
        alone = attrs.evolve(first, operands=(target, *first.operands[1:]), attributes=attributes)
        used = {operand.name for operand in alone.operands}
        weights = tuple(one for one in self.program.module.weights if one.name in used)
        return self._evolve(instructions=(alone,), weights=weights)

    def sample_windows(self, wrong: Array) -> tuple[IsolatedLayer, Array] | None:
        """Sample unpadded windows of a convolution; return None if the layer has no such window.

        Each window is an item of the batch, so that the layer has no padding. Windows with wrong
        elements come first. Returns None for another operation, and if all windows are padded.

        Parameters
        ----------
        wrong
            Whether each element of the result is wrong.
        """
        source = self.find_operand("Src")
        if self.kind is not OpcodeKind.CONVOLUTION or source is None or wrong.ndim != 4:
            return None
        values, pads = self.get_values(source), self.get_attribute("Pads")
        window = SlidingWindow.from_attributes(self.operation.attributes)
        spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True)]
        starts = [
            np.arange(count) * step - pad
            for count, step, pad in zip(wrong.shape[1:3], window.strides, pads[:2], strict=True)
        ]
        inside = [
            (start >= 0) & (start + span <= size)
            for start, span, size in zip(starts, spans, values.shape[1:3], strict=True)
        ]
        places = np.argwhere(
            np.ones(wrong.shape[:1], np.bool_)[:, None, None] & np.logical_and.outer(*inside)
        )
        if len(places) == 0:
            return None
        errors = np.count_nonzero(wrong, axis=3)[tuple(places.T)]
        places = places[np.argsort(-errors, kind="stable")[:SAMPLED_WINDOWS]]
        views = np.lib.stride_tricks.sliding_window_view(values, spans, (1, 2))
        chosen = views[places[:, 0], starts[0][places[:, 1]], starts[1][places[:, 2]]]
        sampled = self.replace_values({source: np.ascontiguousarray(np.moveaxis(chosen, 1, 3))})
        sampled = sampled.replace_attributes(Pads=(0, 0, 0, 0), Strides=(1, 1))
        return sampled._reshape_results((len(places), 1, 1, wrong.shape[3])), places

    def select_output_channels(self, channels: Array) -> IsolatedLayer:
        """Return a copy of a layer with weights that computes only ``channels`` of its output."""
        roles = ("Bias", "FilterScales", "FilterOffsets", "Scales", "Offsets")
        names = (self.find_constant(one) for one in (*roles, "BiasScales", "BiasOffsets"))
        values = {one: self.get_values(one)[channels] for one in names if one is not None}
        weights = self.find_constant("Filter", "Weights")
        if weights is not None:
            values[weights] = np.take(self.get_values(weights), channels, self.get_output_axis())
        shape = (*self.get_type(self.output).shape[:-1], channels.size)
        return self.replace_values(values)._reshape_results(shape)

    def _reshape_results(self, shape: Shape) -> IsolatedLayer:
        results = {one.operands[0].name for one in self.program.module.instructions}
        weights = tuple(
            attrs.evolve(one, type=_reshape(one.type, shape)) if one.name in results else one
            for one in self.program.module.weights
        )
        return self._evolve(weights=weights)

    def execute(self, device: Device) -> Array | None:
        """Execute the layer on ``device``; return its stored result, or None if execution fails."""
        try:
            verify(self.program.module)
            bundle = self.program.compile(device.config, tiling="simple")
            report = device.run(bundle, self.inputs, save_layers=True, strict=False)
        except UserError:
            return None
        if report.trap is not None:
            return None
        result = list(report.layer_outputs.values())[-1].reshape(self.get_type(self.output).shape)
        return result if self.convert_result is None else self.convert_result(result)

    def compute_real(self) -> Array | None:
        """Compute the unrounded result in units of its scale; return None if that is impossible.

        Returns None if the layer cannot be evaluated or its result is not quantized.
        """
        module = self.program.module
        types = {one.name: one.type for one in module.weights}
        quant = types[self.output].quant
        if quant is None or not quant.scale:
            return None
        try:
            reals = {name: dequantize(array, types[name]) for name, array in self.inputs.items()}
            _, _, real = deque(execute_real(module, reals, hidden_relu=False), maxlen=1).pop()
        except (UserError, ValueError):  # shapes that do not fit
            return None
        return np.asarray(real, np.float64) / quant.scale + quant.offset

    def estimate(self) -> Array | None:
        """Estimate the stored result by real arithmetic; return None if that is impossible."""
        real = self.compute_real()
        if real is None:
            return None
        dtype = self.get_type(self.output).dtype
        limits = np.iinfo(dtype)
        low, high = self.clip or (limits.min, limits.max)
        result = np.clip(np.rint(np.nan_to_num(real)), low, high).astype(dtype)
        return result if self.convert_result is None else self.convert_result(result)


def _reshape(type: TensorType, shape: Shape) -> TensorType:
    return type if type.shape == shape else attrs.evolve(type, shape=shape, alignments=())


def _requantize(type: TensorType, scale: float | None, offset: int | None) -> TensorType:
    """Return a type with another scale or offset; None keeps the current one."""
    assert type.quant is not None
    scale = type.quant.scale if scale is None else scale
    offset = type.quant.offset if offset is None else offset
    limits = np.iinfo(type.dtype)
    low, high = (scale * (int(limit) - offset) for limit in (limits.min, limits.max))
    return attrs.evolve(type, quant=Quantization(scale, offset, low, high))


@attrs.frozen(eq=False)
class WrongLayer:
    """Isolated layer with a wrong result, together with the actual and the expected result."""

    layer: IsolatedLayer
    actual: Array
    expected: Array
    slack: float = 0.2
    """Error of the layer's arithmetic, in units of the last place, that the results do not show."""

    @property
    def wrong_channels(self) -> Array:
        """Mask of the output channels that contain a wrong element: bool [channels]."""
        wrong = self.actual != self.expected
        return np.asarray(wrong.reshape(-1, wrong.shape[-1]).any(axis=0))


Change: TypeAlias = tuple[str, IsolatedLayer]
"""Description, which continues the word "with", and the changed layer."""
Family: TypeAlias = Callable[[IsolatedLayer, Arrays], Iterator[Change]]
"""Function of a layer and of other tensors of the reference by name."""
