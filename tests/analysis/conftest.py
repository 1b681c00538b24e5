"""Lets the tests import the sample reports by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
