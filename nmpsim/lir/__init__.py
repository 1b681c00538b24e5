"""Glow's low-level IR: text to module and back, its checks, its constants.

Read ``nodes`` (the data) and ``opcodes`` (every instruction) first. The usual way in::

    module = parse_file(path)
    module, warnings = attach_constants(module, weights, default_tensors_file(path))
    verify(module)
"""

from nmpsim.lir.constants import (
    attach_constants,
    attach_constants_from,
    default_tensors_file,
    read_constants,
)
from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Operand,
    Quantization,
    Span,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import NO_WORK, OPCODES, Kind, opcodes_of
from nmpsim.lir.parser import parse, parse_file
from nmpsim.lir.printer import format_type, print_module
from nmpsim.lir.scales import read_tensors
from nmpsim.lir.verify import verify

__all__ = [
    "parse",
    "parse_file",
    "print_module",
    "format_type",
    "verify",
    "attach_constants",
    "attach_constants_from",
    "read_constants",
    "read_tensors",
    "default_tensors_file",
    "NO_WORK",
    "OPCODES",
    "Kind",
    "opcodes_of",
    "Module",
    "WeightVar",
    "Instruction",
    "Operand",
    "TensorType",
    "Quantization",
    "Span",
]
