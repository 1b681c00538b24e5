"""Make the helpers in this folder, and readers of recorded vectors, importable by name."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "numerics")]
