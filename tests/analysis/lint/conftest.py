"""Make helpers of this and other test folders importable by name."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent)]
sys.path[:0] = [str(TESTS / name) for name in ("compiler", "conformance")]
