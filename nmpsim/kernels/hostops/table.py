"""Which operations the host knows, how many operands they take and on which element kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.kernels.hostops import (
    activations,
    comparison,
    convolution,
    elementwise,
    linear,
    movement,
    normalization,
    pooling,
    quantization,
    softmax,
)
from nmpsim.kernels.hostops.tensors import Implementation

Kinds = frozenset[str]

_FLOAT = frozenset({"float32"})
_INT8, _INT16 = frozenset({"int8"}), frozenset({"int16"})
_NARROW = _INT8 | _INT16
_QUANTIZED = _NARROW | {"int32"}
_BIAS = _QUANTIZED | {"int64"}
_INDEX = frozenset({"int32", "int64"})
_BOOL = frozenset({"bool"})
_REAL = _FLOAT | _NARROW
_NUMBER = _REAL | _INDEX
_ANY = _NUMBER | {"bool", "uint8", "float64", "float16", "uint16"}


@attrs.frozen
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


@attrs.frozen
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


_LINEAR = (
    Signature((_FLOAT, _FLOAT, _FLOAT, _FLOAT)),
    Signature((_NARROW, _NARROW, _NARROW, _BIAS), alike=(0, 1, 2)),
    Signature((_INT16, _INT16, _INT8, _BIAS)),
)
_COMPARISON = (Signature((_BOOL, _NUMBER, _NUMBER), alike=(1, 2)),)
_WINDOW = ("Kernels", "Strides", "Pads")
_CHANNELS = (_FLOAT, _INDEX, _FLOAT, _INDEX)

OPERATIONS: Mapping[str, HostOperation] = {
    "quantize": HostOperation(quantization.quantize, (Signature((_QUANTIZED, _FLOAT)),)),
    "dequantize": HostOperation(quantization.dequantize, (Signature((_FLOAT, _QUANTIZED)),)),
    "rescalequantized": HostOperation(quantization.rescale, (Signature((_QUANTIZED, _QUANTIZED)),)),
    "softmax": HostOperation(softmax.softmax, _alike(_FLOAT | {"int8"}, 2)),
    "localresponsenormalization": HostOperation(
        normalization.local_response_normalization,
        _alike(_FLOAT, 3),
        ("HalfWindowSize", "Alpha", "Beta", "K"),
    ),
    "sigmoid": HostOperation(activations.sigmoid, _alike(_FLOAT, 2)),
    "tanh": HostOperation(activations.tanh, _alike(_FLOAT, 2)),
    "relu": HostOperation(activations.relu, _alike(_REAL, 2)),
    "clip": HostOperation(activations.clip, _alike(_REAL, 2), ("Min", "Max")),
    "leakyrelu": HostOperation(activations.leaky_relu, _alike(_REAL, 2), ("Alpha",)),
    "cpumaxsplat": HostOperation(activations.max_splat, _alike(_REAL, 2), ("SplatValue",)),
    "convolution": HostOperation(convolution.convolution, _LINEAR, (*_WINDOW, "Group")),
    "channelwisequantizedconvolution": HostOperation(
        convolution.channelwise_convolution,
        (
            Signature((_NARROW, _NARROW, _NARROW, _BIAS, *_CHANNELS), alike=(0, 1, 2)),
            Signature((_INT16, _INT16, _INT8, _BIAS, *_CHANNELS)),
        ),
        (*_WINDOW, "Group"),
    ),
    "fullyconnected": HostOperation(linear.fully_connected, _LINEAR),
    "rowwisequantizedfullyconnected": HostOperation(
        linear.rowwise_fully_connected,
        (
            Signature((_NARROW, _NARROW, _NARROW, _BIAS, _FLOAT, _INDEX), alike=(0, 1, 2)),
            Signature((_INT16, _INT16, _INT8, _BIAS, _FLOAT, _INDEX)),
        ),
    ),
    "matmul": HostOperation(linear.matmul, _alike(_REAL, 3)),
    "batchedadd": HostOperation(
        linear.batched_add,
        (
            Signature((_FLOAT, _FLOAT, _FLOAT)),
            Signature((_NARROW, _NARROW, _QUANTIZED), alike=(0, 1)),
        ),
    ),
    "batchedreduceadd": HostOperation(linear.batched_reduce_add, _alike(_NUMBER, 2), ("Axis",)),
    "maxpool": HostOperation(pooling.max_pool, _alike(_REAL, 2), _WINDOW),
    "maxpoolwithargmax": HostOperation(
        pooling.max_pool_with_argmax, (Signature((_REAL, _REAL, _INDEX), alike=(0, 1)),), _WINDOW
    ),
    "avgpool": HostOperation(pooling.avg_pool, _alike(_REAL, 2), (*_WINDOW, "CountIncludePads")),
    "elementadd": HostOperation(elementwise.element_add, _alike(_NUMBER, 3)),
    "elementsub": HostOperation(elementwise.element_sub, _alike(_NUMBER, 3)),
    "elementmul": HostOperation(elementwise.element_mul, _alike(_NUMBER, 3)),
    "elementdiv": HostOperation(elementwise.element_div, _alike(_NUMBER, 3)),
    "elementmax": HostOperation(elementwise.element_max, _alike(_NUMBER, 3)),
    "elementmin": HostOperation(elementwise.element_min, _alike(_NUMBER, 3)),
    "elementcmplte": HostOperation(comparison.element_cmp_lte, _COMPARISON),
    "elementcmplt": HostOperation(comparison.element_cmp_lt, _COMPARISON),
    "elementcmpeq": HostOperation(comparison.element_cmp_eq, _COMPARISON),
    "elementcmpneq": HostOperation(comparison.element_cmp_neq, _COMPARISON),
    "elementselect": HostOperation(
        comparison.element_select,
        (Signature((_NUMBER, _BOOL, _NUMBER, _NUMBER), alike=(0, 2, 3)),),
    ),
    "splat": HostOperation(movement.splat, _alike(_NUMBER | _BOOL, 1), ("Value",)),
    "touch": HostOperation(movement.touch, _alike(_ANY, 1)),
    "copy": HostOperation(movement.copy, _alike(_ANY, 2)),
    "transpose": HostOperation(movement.transpose, _alike(_ANY, 2), ("Shuffle",)),
    "inserttensor": HostOperation(
        movement.insert_tensor, _alike(_ANY, 2), ("Offsets", "Count", "Axis")
    ),
    "extracttensor": HostOperation(movement.extract_tensor, _alike(_ANY, 2), ("Offsets",)),
    "intlookuptable": HostOperation(movement.int_lookup_table, _alike(_NARROW, 3)),
    "resizenearest": HostOperation(movement.resize_nearest, _alike(_ANY, 2), ("Scale",)),
}
"""Opcode -> what the host can do. Read this first."""
