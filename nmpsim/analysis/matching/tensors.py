"""Tensors of recorded runs, of programs and of reference files, as the matching sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.bundle.metadata import Layer, Metadata, Tensor
from nmpsim.lir.nodes import Quantization, TensorType, make_quantized_type

_NUMBERED = re.compile(r"(?:act/)?(\d{1,9}):([^:]+)(?::(.+))?")
_NO_RESULTS = ("const/", "input/")
SavedKey = tuple[int | None, str, str | None]
"""Number, name and operand of an LIR instruction; None if the key of an array lacks them."""
_OUTPUT = "output/"
_INSERTION = "inserttensor"
_FOLDED = "part of "
"""Beginning of the reason why an operation of a model's file has no instruction of its own."""
_VALUE_PRESERVING = ("QuantizeLinear", "DequantizeLinear", "Identity", "Reshape", "Flatten")
"""Operations of a model's file whose results stand for the same real numbers as their operands."""


@attrs.frozen(eq=False)
class KnownValues:
    """Known values of a tensor's first elements, and their precision."""

    shape: Shape
    array: Array
    """First known elements in row-major order: one-dimensional."""
    tolerance: float | Array = 0.0
    """Half a unit of the last printed digit of each number; 0 if the values are exact."""
    is_typed: bool = True
    """Whether the array has the tensor's element type; otherwise it is float64."""

    @property
    def is_complete(self) -> bool:
        """Whether all elements of the tensor are known."""
        return self.array.size == math.prod(self.shape)

    @classmethod
    def from_array(cls, array: Array) -> KnownValues:
        """Create complete and exact values from the elements of ``array``."""
        return cls(array.shape, array.reshape(-1))


@attrs.frozen(eq=False)
class StoredTensor:
    """Tensor of a run, a program or a reference, with a function that loads its elements."""

    name: str
    """Name of the LIR instruction."""
    operand: str | None
    """Operand of the instruction; None for its result."""
    is_result: bool
    type: TensorType | None
    load: Callable[[], KnownValues]
    number: int | None = None
    """Number of the LIR instruction; None if unknown."""
    source_names: tuple[str, ...] = ()
    """Names of the tensor in the model's file from which the program was imported."""
    opcode: str = ""
    """Opcode of the LIR instruction; empty if unknown."""
    inputs: tuple[str, ...] | None = None
    """Names of the layers whose outputs the layer reads; None if unknown."""
    is_partial: bool = False
    """Whether the layer writes only a part of its output, which later layers complete."""
    quantization: Quantization | None = None
    """Scale, offset and real range of the elements; None if unknown or not quantized."""

    @property
    def begins_at_zero(self) -> bool:
        """Whether the range of the type begins at zero, so that a ReLU may be folded in."""
        return self.quantization is not None and self.quantization.low == 0

    @cached_property
    def has_negatives(self) -> bool:
        """Whether real values are known that are below zero by more than a quantization step."""
        values = self.load().array
        if values.dtype.kind != "f" or not values.size:
            return False
        return bool(255 * values.min() < -values.max())

    @cached_property
    def shape(self) -> Shape:
        """Shape of the tensor's type, or of its loaded values if the type is unknown."""
        return self.load().shape if self.type is None else self.type.shape

    @cached_property
    def dtype(self) -> np.dtype[Any] | None:
        """Element type of the tensor, or None for printed numbers, whose type is unknown."""
        if self.type is not None:
            return self.type.dtype
        values = self.load()
        return values.array.dtype if values.is_typed else None


def make_stored_tensor(name: str, values: Array) -> StoredTensor:
    """Make a stored tensor of the result ``name`` from its complete values."""
    return StoredTensor(name, None, True, None, partial(KnownValues.from_array, values))


def convert_unsigned(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert unsigned values to the signed ``dtype`` of equal size; return other types unchanged.

    The values are 128 or 32768 smaller then. Values of other types are returned unchanged.
    """
    if values.dtype.kind != "u" or dtype.kind != "i" or values.dtype.itemsize != dtype.itemsize:
        return values
    half = 1 << (8 * dtype.itemsize - 1)
    stored: Array = (values ^ values.dtype.type(half)).view(dtype)
    return stored


def list_layer_tensors(metadata: Metadata) -> list[StoredTensor]:
    """Return the output tensor of each layer in program order; its elements are unknown."""
    names = find_source_names(metadata)
    known = {name for found in names.values() for name in found}
    inputs = find_layer_inputs(metadata)
    partial = find_partial_layers(metadata)
    return [
        _describe_layer(
            layer,
            (*names.get(layer.name, ()), *({layer.output.name} - known)),
            inputs[layer.name],
            layer.name in partial,
        )
        for layer in metadata.layers
    ]


def find_partial_layers(metadata: Metadata) -> set[str]:
    """Return the names of layers that write a part of a tensor, which a later layer completes."""
    last = {layer.output.name: layer.name for layer in metadata.layers}
    return {
        layer.name
        for layer in metadata.layers
        if layer.op == _INSERTION and last[layer.output.name] != layer.name
    }


def _describe_layer(
    layer: Layer, source_names: tuple[str, ...], inputs: tuple[str, ...], is_partial: bool
) -> StoredTensor:
    output, type_ = layer.output, _get_type(layer.output)
    unknown = KnownValues(output.shape, np.empty(0, type_.dtype))
    return StoredTensor(
        name=layer.name,
        operand=layer.operand,
        is_result=True,
        type=type_,
        load=lambda: unknown,
        number=layer.number,
        source_names=source_names,
        opcode=layer.op,
        inputs=inputs,
        is_partial=is_partial,
        quantization=type_.quant,
    )


def find_layer_inputs(metadata: Metadata) -> dict[str, tuple[str, ...]]:
    """Return the names of the layers whose outputs each layer reads, by layer name."""
    reads = {
        index: [one.tensor for one in step.operands if one.role != "out"]
        for step in metadata.steps
        for index in step.layers
    }
    found: dict[str, tuple[str, ...]] = {}
    writers: dict[int, str] = {}
    for layer in metadata.layers:
        tensors = reads.get(layer.index, ()) if layer.claim is None else layer.claim.inputs
        names = (writers.get(tensor.address) for tensor in tensors)
        found[layer.name] = tuple(dict.fromkeys(name for name in names if name is not None))
        writers[layer.output.address] = layer.name
    return found


def _get_type(output: Tensor) -> TensorType:
    """Return the type of a layer's output."""
    if output.scale is None or output.offset is None:
        return TensorType(output.elem, output.shape)
    return make_quantized_type(output.elem, output.shape, output.scale, output.offset)


def add_program_facts(tensors: Iterable[StoredTensor], metadata: Metadata) -> list[StoredTensor]:
    """Return copies of a run's tensors with facts of the program: source names, opcodes, inputs."""
    names = find_source_names(metadata)
    layers, inputs = {one.name: one for one in metadata.layers}, find_layer_inputs(metadata)
    partial_layers = find_partial_layers(metadata)

    def describe(one: StoredTensor) -> StoredTensor:
        if not one.is_result:
            return one
        one = attrs.evolve(one, source_names=names.get(one.name, ()))
        layer = layers.get(one.name)
        if layer is None:
            return one
        return attrs.evolve(
            one,
            opcode=layer.op,
            inputs=inputs[one.name],
            is_partial=one.name in partial_layers,
            quantization=_get_type(layer.output).quant,
        )

    return list(map(describe, tensors))


def find_source_names(metadata: Metadata) -> dict[str, tuple[str, ...]]:
    """Return the names of each LIR instruction's result in the model's file, by instruction name.

    Several operations of the file may be computed by one instruction. Its result then has the name
    of the last operation, and of operations before it if the last ones do not change real values.
    """
    results: dict[str, list[tuple[str, str]]] = {}
    owners: dict[str, str] = {}
    for operator in metadata.operators:
        _, _, rest = operator.node.partition(" ")
        kind, _, name = rest.partition(" ")
        owner = operator.why.removeprefix(_FOLDED) if not operator.layers else operator.node
        results.setdefault(owner, []).append((kind, name))
        if operator.layers:
            owners[operator.layers[-1]] = operator.node
    found = {}
    for instruction, owner in owners.items():
        names: list[str] = []
        for kind, name in reversed(results[owner]):
            names.append(name)
            if kind not in _VALUE_PRESERVING:
                break
        found[instruction] = tuple(dict.fromkeys(names))
    return found


def parse_saved_key(key: str) -> SavedKey | None:
    """Parse a saved array's key; return None if the key belongs to a constant or an input.

    Keys are ``NNNN:name`` (``--save-layers``), ``act/NNNN:name:operand`` (a recorded run of Glow)
    or names (``--save-outputs``).
    """
    if key.startswith(_NO_RESULTS):
        return None
    match = _NUMBERED.fullmatch(key)
    if match is None:
        return None, key, None
    number, name, operand = match.groups()
    return int(number), name, operand


def list_saved_tensors(keys: Iterable[str], read: Callable[[str], Array]) -> Iterator[StoredTensor]:
    """Yield the tensors in an ``.npz`` file of a run, without constants and inputs.

    Parameters
    ----------
    keys
        Keys of the arrays; see :func:`parse_saved_key`.
    read
        Function that returns an array by its key.
    """
    seen = set()
    for key in keys:
        parsed = parse_saved_key(key)
        if parsed is None:
            continue
        number, name, operand = parsed
        name = name.removeprefix(_OUTPUT)
        yield StoredTensor(
            name=name,
            operand=operand,
            is_result=name not in seen,
            type=None,
            load=partial(_load, read, key),
            number=number,
        )
        seen.add(name)


def _load(read: Callable[[str], Array], key: str) -> KnownValues:
    return KnownValues.from_array(read(key))
