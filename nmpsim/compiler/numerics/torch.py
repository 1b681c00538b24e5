"""PyTorch's engines: float32 multipliers, rounded half to even.

They differ in the bias, in reciprocals, and in when the zero point is added. The formulas were
found by comparison with PyTorch 2.13. Quantities are float32, each operation rounded on its own,
unless a comment says otherwise.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.compiler.numerics.float import (
    FloatEncoder,
    find_integer_bias,
    make_float_requantization,
    round_to_integers,
)
from nmpsim.compiler.numerics.profile import (
    Requantization,
    WeightedScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    divide_float32,
    encode_float32,
    make_float_scale,
    make_scale_words,
)
from nmpsim.compiler.operations import Operation
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.profiles import FBGEMM, FLOAT, ONEDNN, QNNPACK
from nmpsim.kernels.hostops.rounding import LONGEST_SHIFT
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.opcode import OpcodeKind

ONE = np.float32(1)
QNNPACK_BITS = 21
"""The larger factor of qnnpack's addition is between 2^21 and 2^22."""


class TorchEncoder(FloatEncoder):
    """Base class of the numerics profiles of PyTorch's engines."""

    def get_words(self, op: Operation, place: Place) -> Words:
        """Return the words that rescale in an operation without a bias.

        Raise UserError (COMP001) for a matrix product of Int8: PyTorch multiplies dequantized
        numbers in float32, and the last bit of these sums depends on the order of its BLAS.
        """
        if op.kind is OpcodeKind.PRODUCT and op.operands[1].type.elem == "i8":
            raise fail(
                "COMP001",
                f"numerics {self.name} has no matmul of Int8",
                place=place,
                found="Int8 operands, whose sum PyTorch computes in an unspecified order",
                expected="a profile with a matmul of Int8, such as float",
                hint="Use --numerics LAYER=float, which multiplies integers as ONNX Runtime does.",
            )
        return super().get_words(op, place)


class FbgemmEncoder(TorchEncoder):
    """Numerics profile of PyTorch's engine fbgemm, which adds the bias in float."""

    name = "float-fbgemm"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors are float32; the bias is a real number in units of the sum.
        """
        real = layer.bias.real_values
        if layer.by_channel:
            bias = (real / layer.products).astype(np.float64)
        else:
            bias = real.astype(np.float64) * (ONE / layer.products)
        result = make_float_requantization(layer, FBGEMM, bias.view(np.int64), layer.ratios)
        return attrs.evolve(result, bias_in_sum=False)


class OnednnEncoder(TorchEncoder):
    """Numerics profile of PyTorch's engine onednn, which adds the bias to dequantized sums."""

    name = "float-onednn"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The scales of input, weights and result are separate factors.

        They are reciprocals of reciprocals.
        """
        weights = layer.weight_scales
        if not layer.is_convolution:
            weights = ONE / (ONE / weights)
        bias = layer.bias.real_values.astype(np.float64).view(np.int64)
        source = divide_float32(1, divide_float32(1, layer.source.scale))
        return attrs.evolve(
            make_float_requantization(layer, ONEDNN, bias, weights),
            bias_in_sum=False,
            bias_scales=(make_float_scale(source, layer.place),) * layer.channels,
            result_scale=encode_float32(divide_float32(1, layer.target.scale), layer.place),
        )


class QnnpackEncoder(TorchEncoder):
    """Numerics profile of PyTorch's engine qnnpack, with integer additions."""

    name = "float-qnnpack"
    always_counts_padding = True

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors are float32; the bias is rounded to units of the sum.
        """
        bias = find_integer_bias(layer)
        if bias is None:
            real = layer.bias.real_values * (ONE / layer.products)
            bias = round_to_integers(real, layer.target.accumulator_bits)
        factors = layer.products * (ONE / np.float32(layer.target.scale))
        return make_float_requantization(layer, FLOAT, bias, factors)

    def get_words(self, op: Operation, place: Place) -> Words:
        """Return the words that rescale in an operation without a bias.

        Additions have 22-bit factors and one shift.
        """
        opcode = op.instruction.opcode
        if opcode not in ("elementadd", "elementsub", "batchedadd"):
            return super().get_words(op, place)
        target, *sides = op.operands
        left, right = (divide_float32(side.scale, target.scale) for side in sides)
        larger = max(left, right)
        shift = QNNPACK_BITS - (math.frexp(larger)[1] - 1)
        if not (math.isfinite(larger) and 0 <= shift <= LONGEST_SHIFT):
            what = f"{opcode} with factors {left:g} and {right:g}"
            raise self.make_unsupported_error(what, place)
        words = {"profile": QNNPACK, "out_post": shift}
        for name, factor in (("lhs", left), ("rhs", right)):
            words |= make_scale_words(name, IntegerScale(0, 0, round(math.ldexp(factor, shift))))
        return words
