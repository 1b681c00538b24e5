"""LIR in real arithmetic: what a program would answer if nothing were rounded or clipped.

``real_operation`` does one instruction, ``execute_real`` a whole program, float or quantized, on
real values. The same in Glow's float32 (``INTERPRETER``) calibrates a quantization.
``execute_exact`` runs a quantized program on its integers, without a device.
"""

from nmpsim.interpreter.arithmetic import (
    INTERPRETER,
    REAL,
    Arithmetic,
    RealArray,
    interpreter_with_order,
)
from nmpsim.interpreter.exact import execute_exact
from nmpsim.interpreter.execute import execute_real
from nmpsim.interpreter.memory import Execution, Location, locate
from nmpsim.interpreter.operations import (
    dequantize,
    dequantize_rows,
    hides_relu,
    own_scales,
    real_operands,
    real_operation,
)
from nmpsim.interpreter.products import fused_activation
from nmpsim.interpreter.sqnr import decibels, energy, sqnr_db

__all__ = [
    "INTERPRETER",
    "REAL",
    "Arithmetic",
    "Execution",
    "Location",
    "RealArray",
    "decibels",
    "dequantize",
    "dequantize_rows",
    "energy",
    "execute_exact",
    "execute_real",
    "fused_activation",
    "hides_relu",
    "interpreter_with_order",
    "locate",
    "own_scales",
    "real_operands",
    "real_operation",
    "sqnr_db",
]
