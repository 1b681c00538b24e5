"""Make the helper modules of this folder and of the compiler's tests importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compiler")]
