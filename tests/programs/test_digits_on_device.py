"""The digits network on the simulated device, measured as the README of the program says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "programs" / "digits"


def test_accuracy_equals_the_readme() -> None:
    spec = importlib.util.spec_from_file_location("digits_evaluate", FOLDER / "evaluate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    right, total = module.count_right()

    claimed = f"| device (nmpsim) | {right}/{total} = {100 * right / total:.2f} % |"
    assert claimed in (FOLDER / "README.md").read_text(encoding="utf-8")
