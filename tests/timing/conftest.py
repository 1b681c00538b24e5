"""Makes the helpers of the engine's, the compiler's and the recorded programs' tests importable."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(TESTS / name) for name in ("timing", "core", "compiler", "conformance", "report")
]
