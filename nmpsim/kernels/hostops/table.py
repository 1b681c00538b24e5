"""The operations of the host: implementation, number of operands and their dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.kernels.hostops.lazy_imports import LazyModule
from nmpsim.kernels.hostops.tensors import (
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
    DtypeNames,
    Implementation,
)
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.kernels.hostops import (
        activations,
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
        softmax,
        suppression,
    )
else:
    activations = LazyModule("activations")
    convolution = LazyModule("convolution")
    elementwise = LazyModule("elementwise")
    indexing = LazyModule("indexing")
    linear = LazyModule("linear")
    movement = LazyModule("movement")
    normalization = LazyModule("normalization")
    pooling = LazyModule("pooling")
    quantization = LazyModule("quantization")
    reductions = LazyModule("reductions")
    resize = LazyModule("resize")
    softmax = LazyModule("softmax")
    suppression = LazyModule("suppression")


@frozen
class Signature:
    """The dtypes that each operand may have; ``alike`` operands share one dtype."""

    operands: tuple[DtypeNames, ...]
    alike: tuple[int, ...] = ()

    def mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Return why operands of these dtypes do not fit, or None if they do."""
        if len(dtypes) != len(self.operands):
            return f"takes {len(self.operands)} operands, not {len(dtypes)}"
        for index, (dtype, names) in enumerate(zip(dtypes, self.operands, strict=True)):
            if dtype.name not in names:
                return f"operand {index} is {dtype.name}, known is {', '.join(sorted(names))}"
        shared = sorted({dtypes[index].name for index in self.alike})
        if len(shared) > 1:
            return f"operands {list(self.alike)} must be of one kind, not {', '.join(shared)}"
        return None


class HostOperation:
    """An operation of the host: its implementation and the signatures it accepts."""

    def __init__(self, run: Implementation, *signatures: Signature) -> None:
        self.run = run
        self.signatures = signatures

    def mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Return why the first signature does not fit, or None if any signature does."""
        reasons = [signature.mismatch(dtypes) for signature in self.signatures]
        return None if None in reasons else reasons[0]


def _same_dtype(dtypes: DtypeNames, operands: int) -> Signature:
    return Signature((dtypes,) * operands, tuple(range(operands)))


def _by_formula(row: Elementwise) -> HostOperation:
    sources = tuple(range(1, 1 + len(row.sources)))
    dest, alike = (BOOL, sources) if row.to_bool else (row.dtypes, (0, *sources))
    return HostOperation(row.run, Signature((dest, *(row.dtypes for _ in sources)), alike))


_LINEAR = (
    Signature((FLOAT, FLOAT, FLOAT, FLOAT)),
    Signature((NARROW, NARROW, NARROW, BIAS), alike=(0, 1, 2)),
    Signature((INT16, INT16, INT8, BIAS)),
)
_COMPARISON = Signature((BOOL, NUMBER, NUMBER), alike=(1, 2))
_LOOK_UP = Signature((ANY, ANY, INDEX), alike=(0, 1))
_PLAIN = FLOAT | INDEX | BOOL | {"float16"}
_CHANNELS = (FLOAT, INDEX, FLOAT, INDEX)

HOST_OPS: dict[str, HostOperation] = {
    "quantize": HostOperation(quantization.quantize, Signature((QUANTIZED, FLOAT))),
    "dequantize": HostOperation(quantization.dequantize, Signature((FLOAT, QUANTIZED))),
    "rescalequantized": HostOperation(
        quantization.rescale_quantized, Signature((QUANTIZED, QUANTIZED))
    ),
    "softmax": HostOperation(softmax.softmax, _same_dtype(FLOAT | NARROW, 2)),
    "localresponsenormalization": HostOperation(
        normalization.local_response_normalization, _same_dtype(FLOAT, 3)
    ),
    "sigmoid": HostOperation(activations.sigmoid, _same_dtype(FLOAT, 2)),
    "tanh": HostOperation(activations.tanh, _same_dtype(FLOAT, 2)),
    "relu": HostOperation(activations.relu, _same_dtype(REAL, 2)),
    "clip": HostOperation(activations.clip, _same_dtype(REAL, 2)),
    "leakyrelu": HostOperation(activations.leaky_relu, _same_dtype(REAL, 2)),
    "cpumaxsplat": HostOperation(activations.max_splat, _same_dtype(REAL, 2)),
    "convolution": HostOperation(convolution.convolution, *_LINEAR),
    "channelwisequantizedconvolution": HostOperation(
        convolution.channelwise_convolution,
        Signature((NARROW, NARROW, NARROW, BIAS, *_CHANNELS), alike=(0, 1, 2)),
        Signature((INT16, INT16, INT8, BIAS, *_CHANNELS)),
    ),
    "fullyconnected": HostOperation(linear.fully_connected, *_LINEAR),
    "rowwisequantizedfullyconnected": HostOperation(
        linear.rowwise_fully_connected,
        Signature((NARROW, NARROW, NARROW, BIAS, FLOAT, INDEX), alike=(0, 1, 2)),
        Signature((INT16, INT16, INT8, BIAS, FLOAT, INDEX)),
    ),
    "matmul": HostOperation(linear.matmul, _same_dtype(REAL, 3)),
    "batchedadd": HostOperation(
        linear.batched_add,
        Signature((FLOAT, FLOAT, FLOAT)),
        Signature((NARROW, NARROW, QUANTIZED), alike=(0, 1)),
    ),
    "batchedreduceadd": HostOperation(linear.batched_reduce_add, _same_dtype(NUMBER, 2)),
    "maxpool": HostOperation(pooling.max_pool, _same_dtype(REAL, 2)),
    "maxpoolwithargmax": HostOperation(
        pooling.max_pool_with_argmax, Signature((REAL, REAL, INDEX), alike=(0, 1))
    ),
    "avgpool": HostOperation(pooling.avg_pool, _same_dtype(REAL, 2)),
    "elementadd": HostOperation(elementwise.element_add, _same_dtype(NUMBER, 3)),
    "elementsub": HostOperation(elementwise.element_sub, _same_dtype(NUMBER, 3)),
    "elementmul": HostOperation(elementwise.element_mul, _same_dtype(NUMBER, 3)),
    "elementdiv": HostOperation(elementwise.element_div, _same_dtype(NUMBER, 3)),
    "elementmax": HostOperation(elementwise.element_max, _same_dtype(NUMBER, 3)),
    "elementmin": HostOperation(elementwise.element_min, _same_dtype(NUMBER, 3)),
    "elementcmplte": HostOperation(elementwise.element_cmp_lte, _COMPARISON),
    "elementcmplt": HostOperation(elementwise.element_cmp_lt, _COMPARISON),
    "elementcmpeq": HostOperation(elementwise.element_cmp_eq, _COMPARISON),
    "elementcmpneq": HostOperation(elementwise.element_cmp_neq, _COMPARISON),
    "elementselect": HostOperation(
        elementwise.element_select, Signature((NUMBER, BOOL, NUMBER, NUMBER), alike=(0, 2, 3))
    ),
    "splat": HostOperation(movement.splat, _same_dtype(NUMBER | BOOL, 1)),
    "touch": HostOperation(movement.touch, _same_dtype(ANY, 1)),
    "copy": HostOperation(movement.copy, _same_dtype(ANY, 2)),
    "transpose": HostOperation(movement.transpose, _same_dtype(ANY, 2)),
    "inserttensor": HostOperation(movement.insert_tensor, _same_dtype(ANY, 2)),
    "extracttensor": HostOperation(movement.extract_tensor, _same_dtype(ANY, 2)),
    "intlookuptable": HostOperation(movement.int_lookup_table, _same_dtype(NARROW, 3)),
    "resizenearest": HostOperation(resize.resize_nearest, _same_dtype(ANY, 2)),
    "resizebilinear": HostOperation(resize.resize_bilinear, _same_dtype(NUMBER, 2)),
    "flip": HostOperation(movement.flip, _same_dtype(ANY, 2)),
    "spacetodepth": HostOperation(movement.space_to_depth, _same_dtype(ANY, 2)),
    "convertto": HostOperation(movement.convert_to, Signature((_PLAIN, _PLAIN))),
    "topk": HostOperation(indexing.top_k, Signature((REAL, INDEX, REAL, ANY), alike=(0, 2))),
    "argmax": HostOperation(indexing.arg_max, Signature((INDEX, REAL))),
    "argmin": HostOperation(indexing.arg_min, Signature((INDEX, REAL))),
    "gather": HostOperation(indexing.gather, _LOOK_UP),
    "gathernd": HostOperation(indexing.gather_nd, _LOOK_UP),
    "gatherelements": HostOperation(indexing.gather_elements, _LOOK_UP),
    "gatherranges": HostOperation(
        indexing.gather_ranges, Signature((ANY, INDEX, ANY, INDEX), alike=(0, 2))
    ),
    "scatterdata": HostOperation(
        indexing.scatter_data, Signature((NUMBER, INDEX, NUMBER), alike=(0, 2))
    ),
    "nonzero": HostOperation(indexing.non_zero, Signature((INDEX, BOOL))),
    "bucketize": HostOperation(indexing.bucketize, Signature((INDEX, FLOAT))),
    "batchonehot": HostOperation(
        indexing.batch_one_hot, Signature((NUMBER, NUMBER, INDEX, NUMBER), alike=(0, 1, 3))
    ),
    "nonmaxsuppression": HostOperation(
        suppression.non_max_suppression, Signature((INDEX, INDEX, FLOAT, FLOAT), alike=(0, 1))
    ),
    "batchedreducemin": HostOperation(reductions.batched_reduce_min, _same_dtype(NUMBER, 2)),
    "batchedreducemax": HostOperation(reductions.batched_reduce_max, _same_dtype(NUMBER, 2)),
    "batchedreduceprod": HostOperation(
        reductions.batched_reduce_prod, _same_dtype(FLOAT | INDEX, 2)
    ),
    "cumsum": HostOperation(reductions.cum_sum, _same_dtype(FLOAT | INDEX, 2)),
    "batchmatmul": HostOperation(linear.batch_matmul, _same_dtype(FLOAT, 3)),
    "logsoftmax": HostOperation(softmax.log_softmax, _same_dtype(FLOAT, 2)),
    "batchnormalization": HostOperation(
        normalization.batch_normalization,
        Signature((FLOAT,) * 6),
        Signature((INT8, INT8, FLOAT, FLOAT, FLOAT, FLOAT)),
    ),
    "layernormalization": HostOperation(normalization.layer_normalization, _same_dtype(FLOAT, 4)),
    "adaptiveavgpool": HostOperation(pooling.adaptive_avg_pool, _same_dtype(FLOAT | INT8, 2)),
    "convolution3d": HostOperation(convolution.convolution_3d, *_LINEAR[:2]),
    "convtranspose": HostOperation(convolution.transposed_convolution, _same_dtype(FLOAT, 4)),
    **{row.opcode: _by_formula(row) for row in ELEMENTWISE},
}
"""Opcode -> what the host executes for it."""
