"""Quantization of float programs, with the parameters that Glow would choose.

Read ``parameters`` first: scales and offsets. A float module becomes a graph of values
(``graph``), runs on samples (``calibrate``) or is given their ranges (``profile``, ``recorded``),
each operation is quantized or stays float (``placement``), values that must share parameters are
found (``scales``), and the quantized module is written (``rewrite``). ``driver`` has these steps in
order, ``compare`` runs the result.
"""

from nmpsim.quantization.calibrate import stack_examples
from nmpsim.quantization.compare import Comparison, compare
from nmpsim.quantization.driver import (
    CalibratedProgram,
    QuantizedProgram,
    QuantizedResult,
    get_float_inputs,
)
from nmpsim.quantization.files import ProgramFiles
from nmpsim.quantization.parameters import (
    BIAS_SCALES,
    PRECISIONS,
    SCHEMAS,
    Parameters,
    Schema,
    Settings,
    choose_parameters,
    parse_settings,
)
from nmpsim.quantization.profile import Range, read_profile

__all__ = [
    "BIAS_SCALES",
    "PRECISIONS",
    "SCHEMAS",
    "CalibratedProgram",
    "Comparison",
    "Parameters",
    "ProgramFiles",
    "QuantizedProgram",
    "Range",
    "QuantizedResult",
    "Schema",
    "Settings",
    "choose_parameters",
    "compare",
    "get_float_inputs",
    "stack_examples",
    "read_profile",
    "parse_settings",
]
