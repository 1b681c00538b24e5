"""Which operations the host knows, how many operands they take and on which element kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.kernels.hostops.kinds import (
    ANY,
    BIAS,
    BOOL,
    FLOAT,
    INDEX,
    INT8,
    INT16,
    NARROW,
    NUMBER,
    QUANTIZED,
    REAL,
    Kinds,
)
from nmpsim.kernels.hostops.later import Later
from nmpsim.kernels.hostops.tensors import Implementation
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.kernels.hostops import (
        activations,
        comparison,
        convolution,
        elementwise,
        indexing,
        linear,
        movement,
        normalization,
        pooling,
        quantization,
        reductions,
        resize,
        scatter,
        softmax,
        suppression,
        transposed,
        volume,
    )
else:
    activations = Later("activations")
    comparison = Later("comparison")
    convolution = Later("convolution")
    elementwise = Later("elementwise")
    indexing = Later("indexing")
    linear = Later("linear")
    movement = Later("movement")
    normalization = Later("normalization")
    pooling = Later("pooling")
    quantization = Later("quantization")
    reductions = Later("reductions")
    resize = Later("resize")
    scatter = Later("scatter")
    softmax = Later("softmax")
    suppression = Later("suppression")
    transposed = Later("transposed")
    volume = Later("volume")


@frozen
class Signature:
    """Element kinds an operation takes: one set an operand; ``alike`` operands share one kind."""

    operands: tuple[Kinds, ...]
    alike: tuple[int, ...] = ()

    def mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """What is wrong with these dtypes, in words, or None."""
        if len(dtypes) != len(self.operands):
            return f"takes {len(self.operands)} operands, not {len(dtypes)}"
        for place, (dtype, kinds) in enumerate(zip(dtypes, self.operands, strict=True)):
            if dtype.name not in kinds:
                return f"operand {place} is {dtype.name}, known is {', '.join(sorted(kinds))}"
        shared = sorted({dtypes[place].name for place in self.alike})
        if len(shared) > 1:
            return f"operands {list(self.alike)} must be of one kind, not {', '.join(shared)}"
        return None


@frozen
class HostOperation:
    """An implementation, its signatures (any one of them will do), attributes it cannot miss."""

    run: Implementation
    signatures: tuple[Signature, ...]
    attributes: tuple[str, ...] = ()

    def mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Why no signature fits (the reason of the first), or None."""
        reasons = [signature.mismatch(dtypes) for signature in self.signatures]
        return None if None in reasons else reasons[0]


def _alike(kinds: Kinds, operands: int) -> tuple[Signature, ...]:
    """All operands of one kind out of ``kinds``."""
    return (Signature((kinds,) * operands, tuple(range(operands))),)


def _by_formula(row: Elementwise) -> HostOperation:
    """An operation that one row of ``formulas.ELEMENTWISE`` describes."""
    sources = tuple(range(1, 1 + len(row.sources)))
    dest, alike = (BOOL, sources) if row.to_bool else (row.kinds, (0, *sources))
    signature = Signature((dest, *(row.kinds for _ in sources)), alike)
    return HostOperation(row.run, (signature,), row.attributes)


_LINEAR = (
    Signature((FLOAT, FLOAT, FLOAT, FLOAT)),
    Signature((NARROW, NARROW, NARROW, BIAS), alike=(0, 1, 2)),
    Signature((INT16, INT16, INT8, BIAS)),
)
_COMPARISON = (Signature((BOOL, NUMBER, NUMBER), alike=(1, 2)),)
_LOOK_UP = (Signature((ANY, ANY, INDEX), alike=(0, 1)),)
_PLAIN = FLOAT | INDEX | BOOL | {"float16"}
_WINDOW = ("Kernels", "Strides", "Pads")
_CHANNELS = (FLOAT, INDEX, FLOAT, INDEX)

OPERATIONS: Mapping[str, HostOperation] = {
    "quantize": HostOperation(quantization.quantize, (Signature((QUANTIZED, FLOAT)),)),
    "dequantize": HostOperation(quantization.dequantize, (Signature((FLOAT, QUANTIZED)),)),
    "rescalequantized": HostOperation(quantization.rescale, (Signature((QUANTIZED, QUANTIZED)),)),
    "softmax": HostOperation(softmax.softmax, _alike(FLOAT | NARROW, 2)),
    "localresponsenormalization": HostOperation(
        normalization.local_response_normalization,
        _alike(FLOAT, 3),
        ("HalfWindowSize", "Alpha", "Beta", "K"),
    ),
    "sigmoid": HostOperation(activations.sigmoid, _alike(FLOAT, 2)),
    "tanh": HostOperation(activations.tanh, _alike(FLOAT, 2)),
    "relu": HostOperation(activations.relu, _alike(REAL, 2)),
    "clip": HostOperation(activations.clip, _alike(REAL, 2), ("Min", "Max")),
    "leakyrelu": HostOperation(activations.leaky_relu, _alike(REAL, 2), ("Alpha",)),
    "cpumaxsplat": HostOperation(activations.max_splat, _alike(REAL, 2), ("SplatValue",)),
    "convolution": HostOperation(convolution.convolution, _LINEAR, (*_WINDOW, "Group")),
    "channelwisequantizedconvolution": HostOperation(
        convolution.channelwise_convolution,
        (
            Signature((NARROW, NARROW, NARROW, BIAS, *_CHANNELS), alike=(0, 1, 2)),
            Signature((INT16, INT16, INT8, BIAS, *_CHANNELS)),
        ),
        (*_WINDOW, "Group"),
    ),
    "fullyconnected": HostOperation(linear.fully_connected, _LINEAR),
    "rowwisequantizedfullyconnected": HostOperation(
        linear.rowwise_fully_connected,
        (
            Signature((NARROW, NARROW, NARROW, BIAS, FLOAT, INDEX), alike=(0, 1, 2)),
            Signature((INT16, INT16, INT8, BIAS, FLOAT, INDEX)),
        ),
    ),
    "matmul": HostOperation(linear.matmul, _alike(REAL, 3)),
    "batchedadd": HostOperation(
        linear.batched_add,
        (
            Signature((FLOAT, FLOAT, FLOAT)),
            Signature((NARROW, NARROW, QUANTIZED), alike=(0, 1)),
        ),
    ),
    "batchedreduceadd": HostOperation(linear.batched_reduce_add, _alike(NUMBER, 2), ("Axis",)),
    "maxpool": HostOperation(pooling.max_pool, _alike(REAL, 2), _WINDOW),
    "maxpoolwithargmax": HostOperation(
        pooling.max_pool_with_argmax, (Signature((REAL, REAL, INDEX), alike=(0, 1)),), _WINDOW
    ),
    "avgpool": HostOperation(pooling.avg_pool, _alike(REAL, 2), (*_WINDOW, "CountIncludePads")),
    "elementadd": HostOperation(elementwise.element_add, _alike(NUMBER, 3)),
    "elementsub": HostOperation(elementwise.element_sub, _alike(NUMBER, 3)),
    "elementmul": HostOperation(elementwise.element_mul, _alike(NUMBER, 3)),
    "elementdiv": HostOperation(elementwise.element_div, _alike(NUMBER, 3)),
    "elementmax": HostOperation(elementwise.element_max, _alike(NUMBER, 3)),
    "elementmin": HostOperation(elementwise.element_min, _alike(NUMBER, 3)),
    "elementcmplte": HostOperation(comparison.element_cmp_lte, _COMPARISON),
    "elementcmplt": HostOperation(comparison.element_cmp_lt, _COMPARISON),
    "elementcmpeq": HostOperation(comparison.element_cmp_eq, _COMPARISON),
    "elementcmpneq": HostOperation(comparison.element_cmp_neq, _COMPARISON),
    "elementselect": HostOperation(
        comparison.element_select,
        (Signature((NUMBER, BOOL, NUMBER, NUMBER), alike=(0, 2, 3)),),
    ),
    "splat": HostOperation(movement.splat, _alike(NUMBER | BOOL, 1), ("Value",)),
    "touch": HostOperation(movement.touch, _alike(ANY, 1)),
    "copy": HostOperation(movement.copy, _alike(ANY, 2)),
    "transpose": HostOperation(movement.transpose, _alike(ANY, 2), ("Shuffle",)),
    "inserttensor": HostOperation(
        movement.insert_tensor, _alike(ANY, 2), ("Offsets", "Count", "Axis")
    ),
    "extracttensor": HostOperation(movement.extract_tensor, _alike(ANY, 2), ("Offsets",)),
    "intlookuptable": HostOperation(movement.int_lookup_table, _alike(NARROW, 3)),
    "resizenearest": HostOperation(movement.resize_nearest, _alike(ANY, 2), ("Scale",)),
    "resizebilinear": HostOperation(resize.resize_bilinear, _alike(NUMBER, 2), ("Scale",)),
    "flip": HostOperation(movement.flip, _alike(ANY, 2), ("Axis",)),
    "spacetodepth": HostOperation(movement.space_to_depth, _alike(ANY, 2), ("BlockSize",)),
    "convertto": HostOperation(movement.convert_to, (Signature((_PLAIN, _PLAIN)),)),
    "topk": HostOperation(
        indexing.top_k, (Signature((REAL, INDEX, REAL, ANY), alike=(0, 2)),), ("K",)
    ),
    "argmax": HostOperation(indexing.arg_max, (Signature((INDEX, REAL)),), ("Axis",)),
    "argmin": HostOperation(indexing.arg_min, (Signature((INDEX, REAL)),), ("Axis",)),
    "gather": HostOperation(indexing.gather, _LOOK_UP, ("BatchDims",)),
    "gathernd": HostOperation(indexing.gather_nd, _LOOK_UP, ("BatchDims",)),
    "gatherelements": HostOperation(indexing.gather_elements, _LOOK_UP, ("Dim",)),
    "gatherranges": HostOperation(
        indexing.gather_ranges, (Signature((ANY, INDEX, ANY, INDEX), alike=(0, 2)),)
    ),
    "scatterdata": HostOperation(
        scatter.scatter_data,
        (Signature((NUMBER, INDEX, NUMBER), alike=(0, 2)),),
        ("Cumulative",),
    ),
    "nonzero": HostOperation(indexing.non_zero, (Signature((INDEX, BOOL)),)),
    "bucketize": HostOperation(indexing.bucketize, (Signature((INDEX, FLOAT)),), ("Boundaries",)),
    "batchonehot": HostOperation(
        indexing.batch_one_hot, (Signature((NUMBER, NUMBER, INDEX, NUMBER), alike=(0, 1, 3)),)
    ),
    "nonmaxsuppression": HostOperation(
        suppression.non_max_suppression,
        (Signature((INDEX, INDEX, FLOAT, FLOAT), alike=(0, 1)),),
        (
            "CenterPointBox",
            "MaxOutputBoxesPerClass",
            "IouThreshold",
            "ScoreThreshold",
            "IsTFVersion4",
        ),
    ),
    "batchedreducemin": HostOperation(reductions.batched_reduce_min, _alike(NUMBER, 2), ("Axes",)),
    "batchedreducemax": HostOperation(reductions.batched_reduce_max, _alike(NUMBER, 2), ("Axes",)),
    "batchedreduceprod": HostOperation(
        reductions.batched_reduce_prod, _alike(FLOAT | INDEX, 2), ("Axis",)
    ),
    "cumsum": HostOperation(
        reductions.cum_sum, _alike(FLOAT | INDEX, 2), ("Dim", "Exclusive", "Reverse")
    ),
    "batchmatmul": HostOperation(linear.batch_matmul, _alike(FLOAT, 3)),
    "logsoftmax": HostOperation(softmax.log_softmax, _alike(FLOAT, 2)),
    "batchnormalization": HostOperation(
        normalization.batch_normalization,
        (
            Signature((FLOAT,) * 6),
            Signature((INT8, INT8, FLOAT, FLOAT, FLOAT, FLOAT)),
        ),
        ("ChannelIdx", "Epsilon"),
    ),
    "layernormalization": HostOperation(
        normalization.layer_normalization, _alike(FLOAT, 4), ("Epsilon",)
    ),
    "adaptiveavgpool": HostOperation(pooling.adaptive_avg_pool, _alike(FLOAT | INT8, 2)),
    "convolution3d": HostOperation(volume.convolution_3d, _LINEAR[:2], (*_WINDOW, "Group")),
    "convtranspose": HostOperation(
        transposed.conv_transpose, _alike(FLOAT, 4), (*_WINDOW, "Group", "Dilation")
    ),
    **{row.opcode: _by_formula(row) for row in ELEMENTWISE},
}
"""Opcode -> what the host can do. Read this first."""
