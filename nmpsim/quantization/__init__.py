"""Quantization of float programs, with the parameters that Glow would choose.

Start with ``parameters``: scales and offsets. A float module becomes a graph of values
(``graph``). Their ranges are measured on samples (``calibrate``) or read from a profile
(``profile``). Then the operations to quantize are chosen (``placement``), the values that share
parameters are found (``scales``), and the quantized module is written (``rewrite``). ``driver``
executes these steps in order; ``compare`` measures the accuracy of the result.
"""

from nmpsim.quantization.calibrate import stack_examples
from nmpsim.quantization.compare import QuantizationAccuracy, compare_schemas
from nmpsim.quantization.driver import (
    CalibratedProgram,
    QuantizedProgram,
    QuantizedResult,
    find_float_inputs,
)
from nmpsim.quantization.files import ProgramFiles
from nmpsim.quantization.parameters import (
    BIAS_SCALES,
    PRECISIONS,
    SCHEMAS,
    Settings,
    choose_parameters,
    parse_settings,
)
from nmpsim.quantization.profile import ValueRange, read_profile

__all__ = [
    "BIAS_SCALES",
    "PRECISIONS",
    "SCHEMAS",
    "CalibratedProgram",
    "QuantizationAccuracy",
    "ProgramFiles",
    "QuantizedProgram",
    "ValueRange",
    "QuantizedResult",
    "Settings",
    "choose_parameters",
    "compare_schemas",
    "find_float_inputs",
    "stack_examples",
    "read_profile",
    "parse_settings",
]
