"""PyTorch's engines: float32 multipliers, rounded half to even.

They differ in the bias, in reciprocals, and in when the zero point is added.
"""

from __future__ import annotations

import math

from nmpsim.compiler.numerics.float import FloatEncoder
from nmpsim.compiler.numerics.profile import Words
from nmpsim.compiler.numerics.ratios import divide_float32, make_scale_words
from nmpsim.compiler.operations import Operation
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.profiles import QNNPACK
from nmpsim.kernels.hostops.rounding import LONGEST_SHIFT
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.opcode import OpcodeKind

QNNPACK_BITS = 21
"""The larger factor of qnnpack's addition is between 2^21 and 2^22."""


class TorchEncoder(FloatEncoder):
    """Base class of the encoders of the numerics profiles of PyTorch's engines."""

    def get_factor_words(self, op: Operation, place: Place) -> Words:
        """Return the descriptor words with the factors of an operation without bias.

        Raise UserError (COMP001) for a matrix product of Int8: PyTorch multiplies dequantized
        numbers in float32, and the last bit of these sums depends on the order of its BLAS.
        """
        if op.kind is OpcodeKind.PRODUCT and op.operands[1].type.elem == "i8":
            raise fail(
                "COMP001",
                f"numerics {self.name} has no matmul of Int8",
                place=place,
                found="a matmul of Int8, which PyTorch sums in an unspecified order",
                expected="numerics with a matmul of Int8, such as float",
                hint="Use --numerics LAYER=float, which multiplies integers as ONNX Runtime does.",
            )
        return super().get_factor_words(op, place)


class QnnpackEncoder(TorchEncoder):
    """Encoder of the profile of PyTorch's engine qnnpack, which adds with integer factors."""

    always_counts_padding = True

    def get_factor_words(self, op: Operation, place: Place) -> Words:
        """Return the descriptor words with the factors of an operation without bias.

        Additions have 22-bit factors and one shift.
        """
        opcode = op.instruction.opcode
        if opcode not in ("elementadd", "elementsub", "batchedadd"):
            return super().get_factor_words(op, place)
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
