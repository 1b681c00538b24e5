"""Make helpers of this folder and of the interpreter and compiler tests importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("quantization", "interpreter", "compiler")]
