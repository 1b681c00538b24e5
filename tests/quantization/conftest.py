"""Makes the helpers of this folder and of the tests of interpreter and compiler importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("quantization", "interpreter", "compiler")]
