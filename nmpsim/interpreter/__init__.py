"""Interpretation of LIR without a device, on real numbers or on the stored integers.

``evaluate_operation`` evaluates one instruction and ``execute_real`` a whole program, float or
quantized, in real arithmetic (float64): nothing is rounded or clipped. In float32 they follow
Glow's Interpreter, which calibrates a quantization. ``execute_exact`` runs a quantized program on
its integers, bit-exactly.
"""

from nmpsim.interpreter.execute import RealProgram, execute_exact, execute_real
from nmpsim.interpreter.memory import TensorLocation, locate_tensors, view_tensor
from nmpsim.interpreter.operations import (
    dequantize,
    dequantize_operands,
    dequantize_rows,
    dequantize_sums,
    evaluate_operation,
    find_scale_operands,
    find_sums_operands,
)
from nmpsim.interpreter.sqnr import compute_energy, compute_sqnr_db, convert_to_decibels

__all__ = [
    "RealProgram",
    "TensorLocation",
    "convert_to_decibels",
    "dequantize",
    "dequantize_rows",
    "dequantize_sums",
    "compute_energy",
    "execute_exact",
    "execute_real",
    "locate_tensors",
    "view_tensor",
    "find_scale_operands",
    "find_sums_operands",
    "dequantize_operands",
    "evaluate_operation",
    "compute_sqnr_db",
]
