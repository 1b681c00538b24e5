"""Tables of the operators that can be lowered, named as in ONNX."""

from __future__ import annotations

import attrs

from nmpsim.frontends.graph import (
    conversions,
    convolution,
    float_ops,
    integer_ops,
    matmul,
    movement,
    pooling,
    resizing,
)
from nmpsim.frontends.graph.operation import OperatorFunction


@attrs.frozen
class IntegerOperator:
    """Lowering of an operator on quantized tensors, and its condition for fusing QDQ nodes."""

    lower: OperatorFunction
    inputs: int = 1
    """Number of quantized inputs without a bias; 0: any number, or not between conversions."""
    is_island: bool = False
    """Whether ONNX Runtime computes it in float32 even between integers."""
    has_16_bits: bool = True
    takes_limits: bool = False
    """Whether it clips by the bounds of a fused clip."""
    is_weighted: bool = False
    """Whether its second input is weights, whose type may differ."""


_REFERENCE_FUNCTIONS = ("LeakyRelu", "Sigmoid")
"""Scalar functions that ONNX Runtime computes on integers."""

INTEGER_OPERATORS: dict[str, IntegerOperator] = {
    **{
        op: IntegerOperator(
            integer_ops.lower_scalar_function,
            is_island=op not in _REFERENCE_FUNCTIONS,
            has_16_bits=False,
        )
        for op in integer_ops.SCALAR_FUNCTIONS
    },
    "Add": IntegerOperator(integer_ops.lower_integer_binary, 2, takes_limits=True),
    "AveragePool": IntegerOperator(pooling.lower_pool, takes_limits=True),
    "Clip": IntegerOperator(integer_ops.lower_integer_clip, is_island=True),
    "Concat": IntegerOperator(integer_ops.lower_integer_concatenation, 0),
    "Conv": IntegerOperator(convolution.lower_convolution, 2, takes_limits=True, is_weighted=True),
    "ConvTranspose": IntegerOperator(
        convolution.lower_transposed_convolution,
        2,
        is_island=True,
        takes_limits=True,
        is_weighted=True,
    ),
    "Div": IntegerOperator(integer_ops.lower_integer_division, is_island=True, has_16_bits=False),
    "Gemm": IntegerOperator(matmul.lower_integer_matmul, 2, takes_limits=True, is_weighted=True),
    "GlobalAveragePool": IntegerOperator(pooling.lower_pool, has_16_bits=False, takes_limits=True),
    "MatMul": IntegerOperator(matmul.lower_integer_matmul, 2, is_weighted=True),
    "Mul": IntegerOperator(integer_ops.lower_integer_binary, 2, takes_limits=True),
    "QuantizeLinear": IntegerOperator(integer_ops.lower_requantization, 0),
    "ReduceMean": IntegerOperator(pooling.lower_reduction, is_island=True),
    "Relu": IntegerOperator(integer_ops.lower_integer_clip, is_island=True),
    "Resize": IntegerOperator(resizing.lower_integer_resize, is_island=True),
    "Softmax": IntegerOperator(pooling.lower_softmax, has_16_bits=False),
    "Sub": IntegerOperator(integer_ops.lower_integer_binary, 2, is_island=True, takes_limits=True),
}

OPERATORS: dict[str, OperatorFunction] = {
    **dict.fromkeys(float_ops.UNARY_OPCODES, float_ops.lower_unary),
    **dict.fromkeys(float_ops.VARIADIC_OPCODES, float_ops.lower_variadic),
    **dict.fromkeys(float_ops.LOGIC_OPCODES, float_ops.lower_logic),
    "ArgMax": pooling.lower_arg_max,
    "ArgMin": pooling.lower_arg_max,
    "AveragePool": pooling.lower_pool,
    "BatchNormalization": float_ops.lower_batch_normalization,
    "Cast": conversions.lower_cast,
    "CastLike": conversions.lower_cast_like,
    "Celu": float_ops.lower_exponential_unit,
    "Clip": float_ops.lower_clip,
    "Concat": movement.lower_concatenation,
    "Conv": convolution.lower_convolution,
    "ConvInteger": matmul.lower_conv_integer,
    "ConvTranspose": convolution.lower_transposed_convolution,
    "DepthToSpace": movement.lower_space_to_depth,
    "DequantizeLinear": conversions.lower_dequantize,
    "Dropout": movement.lower_dropout,
    "DynamicQuantizeLinear": conversions.lower_dynamic_quantize,
    "Elu": float_ops.lower_exponential_unit,
    "Expand": float_ops.lower_expand,
    "Flatten": movement.lower_flatten,
    "Gather": movement.lower_gather,
    "Gemm": matmul.lower_matmul,
    "GlobalAveragePool": pooling.lower_pool,
    "GlobalMaxPool": pooling.lower_pool,
    "HardSigmoid": float_ops.lower_hard_sigmoid,
    "HardSwish": float_ops.lower_hard_sigmoid,
    "Identity": movement.lower_identity,
    "LRN": float_ops.lower_response_normalization,
    "LeakyRelu": float_ops.lower_leaky_relu,
    "LogSoftmax": pooling.lower_softmax,
    "MatMul": matmul.lower_matmul,
    "MatMulInteger": matmul.lower_matmul_integer,
    "MaxPool": pooling.lower_pool,
    "PRelu": float_ops.lower_prelu,
    "Pad": movement.lower_pad,
    "QuantizeLinear": conversions.lower_quantize,
    "ReduceMax": pooling.lower_reduction,
    "ReduceMean": pooling.lower_reduction,
    "ReduceMin": pooling.lower_reduction,
    "ReduceSum": pooling.lower_reduction,
    "Reshape": movement.lower_reshape,
    "Resize": resizing.lower_resize,
    "Selu": float_ops.lower_exponential_unit,
    "Slice": movement.lower_slice,
    "Softmax": pooling.lower_softmax,
    "SpaceToDepth": movement.lower_space_to_depth,
    "Split": movement.lower_split,
    "Squeeze": movement.lower_squeeze,
    "Tile": movement.lower_tile,
    "Transpose": movement.lower_transpose,
    "Unsqueeze": movement.lower_unsqueeze,
    "Upsample": resizing.lower_resize,
    "Where": float_ops.lower_where,
    "com.microsoft.QGemm": matmul.lower_qgemm,
}
"""Operator on floats, or on elements of any type -> its lowering."""
