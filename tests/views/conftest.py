"""Lets the tests import the sample reports and the small TFLite files by name."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "report"), str(TESTS / "frontends")]
