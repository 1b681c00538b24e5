"""What PyTorch's engines share: float32 multipliers, rounded half to even.

They differ in what they make of the bias, in reciprocals, and in when the zero point is added.
The formulas were found by comparing with PyTorch 2.13 itself; quantities are
float32, each operation rounded on its own, unless a comment says otherwise.
"""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.float import UNSIGNED, Float, reciprocal
from nmpsim.compiler.numerics.profile import Average, Words
from nmpsim.compiler.numerics.ratios import float_form, product, word_of
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.profiles import FBGEMM

ONE = np.float32(1)


class Torch(Float):
    """What PyTorch's engines share."""

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """Int16 has no reference, and is multiplied as element by element; COMP001 for Int8.

        PyTorch multiplies dequantized numbers in float32; the last bit of these sums depends on
        the order in which its BLAS adds.
        """
        if lhs.type.elem == "i8":
            raise fail(
                "COMP001",
                f"numerics {self.name} has no matmul of Int8",
                place=place,
                found="PyTorch sums it in float32, in an order that no formula tells",
                expected="another profile for this layer",
                hint="--numerics LAYER=float multiplies integers, as ONNX Runtime does",
            )
        return super().matmul(lhs, rhs, target, place)

    def average(self, window: Average) -> Words:
        """``rne(sum * (Sx / Sy / n) + Oy)``: the zero point before rounding."""
        return window.words(FBGEMM, float_form)

    def _ratio(self, lhs: View, rhs: View, target: View) -> float:
        """``m = (Sl*Sr) * (1 / Sy)``."""
        return product(product(lhs.scale, rhs.scale), reciprocal(target.scale))

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """``A = fma(q, S, -O*S)`` of unsigned integers, which Int8 is less 128."""
        words = self._of_reals(opcode, operands, place)
        if opcode == "elementmul":
            return words
        for side, view in (("lhs", operands[1]), ("rhs", operands[2])):
            moved = UNSIGNED if view.type.elem == "i8" else 0
            addend = -product(float(view.offset + moved), view.scale)
            words |= {f"{side}_offset": -moved, f"{side}_post": word_of(addend, place)}
        return words
