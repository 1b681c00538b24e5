"""Layers and tensors of a chain: consecutive layers that keep their results in scratchpads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import attrs

from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.tiling.channelwise import is_depthwise, make_pool_words
from nmpsim.compiler.tiling.context import PlanningContext
from nmpsim.compiler.tiling.elementwise import make_pair_words
from nmpsim.compiler.tiling.grid import Integers
from nmpsim.compiler.tiling.image import SpatialAxis, make_spatial_axes
from nmpsim.compiler.tiling.weighted import WeightedLayer, make_weighted_layer
from nmpsim.isa.words import CHANNEL_BYTES
from nmpsim.lir.opcode import OpcodeKind

CONV, DEPTHWISE, PAIR = "nmp.conv", "nmp.dwconv", "nmp.eltwise"
MAX_POOL, AVERAGE_POOL = "nmp.maxpool", "nmp.avgpool"


@attrs.frozen(eq=False)
class ChainTensor:
    """Tensor that a chain reads or writes, with rows, columns and channels."""

    view: BufferView
    address: int
    """Address in DRAM."""
    shape: tuple[int, int, int]
    """Rows, columns and channels."""

    @property
    def rows(self) -> int:
        """Number of pixel rows, which is 1 for a matrix."""
        return self.shape[0]

    @property
    def columns(self) -> int:
        """Number of pixels in a row."""
        return self.shape[1]

    @property
    def channels(self) -> int:
        """Number of channels of each pixel."""
        return self.shape[2]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.rows * self.columns * self.channels

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return self.view.element_bytes

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return self.elements * self.element_bytes

    @property
    def pixel_bytes(self) -> int:
        """Size of a pixel with all channels in bytes."""
        return self.channels * self.element_bytes

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return self.columns * self.pixel_bytes


@attrs.frozen(eq=False)
class ChainLayer:
    """Layer of a chain, which one instruction computes for a range of rows."""

    index: int
    """Index among all layers of the program."""
    name: str
    mnemonic: str
    words: Mapping[str, int]
    """Words of the descriptor that are the same for all rows."""
    axes: tuple[SpatialAxis, SpatialAxis] | None
    """Rows and columns of a window; None for an elementwise operation."""
    inputs: tuple[str, ...]
    output: str
    weighted: WeightedLayer | None = None

    @property
    def is_padded(self) -> bool:
        """Whether the instruction reads padding from the scratchpad."""
        return self.weighted is not None

    @property
    def channel_bytes(self) -> int:
        """Size of the constants of an output channel in bytes, without padding of the layout."""
        layer = self.weighted
        if layer is None:
            return 0
        taps = int(layer.weights[0].size) * layer.element_bytes
        return CHANNEL_BYTES + layer.scale_bytes + taps

    def find_input_rows(self, begin: Integers, end: Integers) -> tuple[Integers, ...]:
        """Return first row, end row and padding above and below of the input of result rows."""
        if self.axes is None:
            return begin, end, 0 * begin, 0 * begin
        span = self.axes[0].find_input_span(begin, end)
        return span.first, span.first + span.count, span.before, span.after


@attrs.frozen(eq=False)
class Chain:
    """Chain of consecutive layers, with the tensors that the layers read and write."""

    layers: tuple[ChainLayer, ...]
    tensors: Mapping[str, ChainTensor]
    """Tensors by key, those that no layer of the chain writes first."""
    stored: frozenset[str]
    """Tensors that later layers or the user read from DRAM."""
    row_bytes: int
    """Bytes of a DRAM row."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Keys of the tensors that the chain reads from DRAM."""
        return tuple(self.tensors)[: len(self.tensors) - len(self.layers)]

    @property
    def first(self) -> int:
        """Program index of the chain's first layer."""
        return self.layers[0].index

    @property
    def last(self) -> int:
        """Program index of the chain's last layer."""
        return self.layers[-1].index

    @property
    def result(self) -> ChainTensor:
        """Tensor with the result of the chain's last layer."""
        return self.tensors[self.layers[-1].output]

    @property
    def key(self) -> Hashable:
        """Key of the geometry; chains with equal keys have equal plans except for addresses."""
        number = {name: index for index, name in enumerate(self.tensors)}
        layers = tuple(
            (
                one.mnemonic,
                one.axes,
                tuple(number[name] for name in one.inputs),
                one.channel_bytes,
            )
            for one in self.layers
        )
        tensors = tuple(
            (one.shape, one.element_bytes, name in self.stored, one.address % self.row_bytes)
            for name, one in self.tensors.items()
        )
        return layers, tensors


ReadLayer = tuple[ChainLayer, Mapping[str, ChainTensor]]
"""Layer with its tensors."""


def read_chain_layer(index: int, op: Operation, context: PlanningContext) -> ReadLayer | None:
    """Read a layer and its tensors for a chain; return None if no chain can contain the layer."""
    tensors: dict[str, ChainTensor] = {}

    def add_tensor(view: BufferView, shape: Sequence[int]) -> str:
        rows, columns, channels = shape
        address = context.memory.get_address(view)
        key = f"{view.buffer.name}+{view.byte_offset}"
        tensors[key] = ChainTensor(view, address, (rows, columns, channels))
        return key

    weighted: WeightedLayer | None = None
    axes: tuple[SpatialAxis, SpatialAxis] | None = None
    words: dict[str, Any]
    inputs = op.operands[1:2]
    if op.host_reason or any(view.buffer.constant for view in op.operands[1:2]):
        return None
    if op.kind in (OpcodeKind.CONVOLUTION, OpcodeKind.FULLY_CONNECTED):
        weighted = make_weighted_layer(op, context)
        mnemonic = DEPTHWISE if is_depthwise(op) else CONV
        if not weighted.is_exact or (mnemonic == CONV and weighted.groups > 1):
            return None
        words, axes = dict(weighted.words), weighted.axes
    elif op.kind in (OpcodeKind.MAX_POOL, OpcodeKind.AVERAGE_POOL):
        mnemonic = MAX_POOL if op.kind is OpcodeKind.MAX_POOL else AVERAGE_POOL
        words, axes = make_pool_words(op, context), make_spatial_axes(op)
    elif op.kind is OpcodeKind.PAIR:
        mnemonic, words, inputs = PAIR, make_pair_words(op, context), op.operands[1:3]
    else:
        return None
    shapes = [_make_image_shape(view) for view in (*inputs, op.output)]
    if None in shapes or op.output.buffer.name in {view.buffer.name for view in inputs}:
        return None
    *keys, output = (
        add_tensor(view, shape)
        for view, shape in zip((*inputs, op.output), shapes, strict=True)
        if shape is not None
    )
    name = op.instruction.name
    layer = ChainLayer(index, name, mnemonic, words, axes, tuple(keys), output, weighted)
    return layer, tensors


def _make_image_shape(view: BufferView) -> tuple[int, int, int] | None:
    """Return rows, columns and channels of a matrix or of a single image, else None."""
    shape = view.shape
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    return (shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[0] == 1 else None


def make_chain(
    read: Sequence[ReadLayer],
    needed: frozenset[str],
    row_bytes: int,
    *,
    has_complete_images: bool = False,
) -> Chain | None:
    """Make a chain of consecutive layers; return None if the layers cannot form a chain.

    Parameters
    ----------
    read : sequence of ReadLayer
        The layers.
    needed : frozenset of str
        Names of the buffers that are used outside the chain.
    row_bytes : int
        Bytes of a DRAM row.
    has_complete_images : bool
        Whether each core computes complete images, so that a fully connected layer can read one.
    """
    tensors: dict[str, ChainTensor] = {}
    found: list[ChainLayer] = []
    for layer, own in read:
        for key, tensor in own.items():
            image = tensors.setdefault(key, tensor)
            if image.shape != tensor.shape:
                if not has_complete_images or not _is_matrix_product(layer, image):
                    return None
                layer = _convert_to_convolution(layer, image)
        found.append(layer)
    layers = tuple(found)
    written = {layer.output: None for layer in layers}
    buffers = {tensor.view.buffer.name for tensor in tensors.values()}
    if len(written) < len(layers) or len(buffers) < len(tensors):
        return None
    seen: set[str] = set()
    for layer in layers:
        if seen and seen.isdisjoint(layer.inputs):
            return None
        if any(name in written and name not in seen for name in layer.inputs):
            return None
        seen.add(layer.output)
    names = [key for key in tensors if key not in written]
    ordered = {key: tensors[key] for key in (*names, *written)}
    stored = {key for key in written if tensors[key].view.buffer.name in needed}
    read_inside = {name for layer in layers for name in layer.inputs}
    stored |= written.keys() - read_inside
    return Chain(layers, ordered, frozenset(stored), row_bytes)


def _is_matrix_product(layer: ChainLayer, image: ChainTensor) -> bool:
    """Return whether a layer multiplies all elements of an image, as one row, with weights."""
    weighted = layer.weighted
    if layer.mnemonic != CONV or weighted is None:
        return False
    is_row = all(axis.size == axis.kernel == axis.out == 1 for axis in weighted.axes)
    return is_row and weighted.depth == image.elements


def _convert_to_convolution(layer: ChainLayer, image: ChainTensor) -> ChainLayer:
    """Convert a matrix product to a convolution with a window of the size of the image."""
    assert layer.weighted is not None
    rows, columns = (SpatialAxis(size, 1, size, 1, 0) for size in image.shape[:2])
    weights = layer.weighted.weights.reshape(-1, *image.shape)
    weighted = attrs.evolve(layer.weighted, axes=(rows, columns), weights=weights)
    return attrs.evolve(layer, axes=(rows, columns), weighted=weighted)


def count_constant_bytes(chain: Chain) -> int:
    """Return the size of all constants of a chain in bytes, without padding of their layout."""
    return sum(
        layer.channel_bytes * layer.weighted.out_channels
        for layer in chain.layers
        if layer.weighted is not None
    )
