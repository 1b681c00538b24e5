"""``python -m tests.full [ARGUMENTS FOR PYTEST]``."""

import os
import sys
from pathlib import Path

import pytest

os.chdir(Path(__file__).parents[2])  # where pytest finds its settings, and which tests there are
sys.exit(pytest.main(["-q", "-n", "auto", "--dist", "worksteal", "-m", "", *sys.argv[1:]]))
