"""Float programs to quantized ones, with the parameters that Glow would choose.

Read ``parameters`` first: scales and offsets. A float module becomes a graph of values
(``graph``), runs on samples (``calibrate``) or is given their ranges (``profile``, ``recorded``),
each operation is quantized or stays float (``placement``), values that must share parameters are
found (``scales``), and the quantized module is written (``rewrite``). ``driver`` has these steps in
order, ``compare`` runs the result.
"""

from nmpsim.quantization.calibrate import of_examples
from nmpsim.quantization.compare import Comparison, compare
from nmpsim.quantization.driver import (
    Calibrated,
    QuantizedProgram,
    Result,
    float_inputs,
)
from nmpsim.quantization.files import ProgramFiles
from nmpsim.quantization.parameters import SCHEMAS, Parameters, Schema, choose_parameters
from nmpsim.quantization.profile import Range, read_profile
from nmpsim.quantization.settings import BIAS_SCALES, PRECISIONS, Settings, settings_of

__all__ = [
    "BIAS_SCALES",
    "PRECISIONS",
    "SCHEMAS",
    "Calibrated",
    "Comparison",
    "Parameters",
    "ProgramFiles",
    "QuantizedProgram",
    "Range",
    "Result",
    "Schema",
    "Settings",
    "choose_parameters",
    "compare",
    "float_inputs",
    "of_examples",
    "read_profile",
    "settings_of",
]
