"""A campaign that measures how many recorded layers of real references identify names."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
# The helpers that make programs of recorded layers import each other by name.
sys.path[:0] = [str(_TESTS), *(str(_TESTS / name) for name in ("conformance", "frontends"))]
