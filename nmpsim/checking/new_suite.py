"""Templates for a new suite of one case and for a CI workflow that checks it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nmpsim.checking.suite import SuiteCase
from nmpsim.diagnostics import Place, fail

_WORKFLOW = """\
name: nmpsim
on:
  push:
    branches: [main]
  pull_request:
permissions:
  contents: read
  security-events: write # for upload-sarif
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: OWNER/nmpsim/programs/ci@REVISION # the repository that has nmpsim, and a commit of it
        with:
          check: nmpsim check suite.toml
          extras: ci,tflite,onnx,image
"""


def format_workflow() -> str:
    """Return the YAML text of a GitHub workflow that checks ``suite.toml``."""
    return _WORKFLOW


def format_suite(case: SuiteCase, folder: Path) -> str:
    """Format a suite of one case as TOML text with paths relative to ``folder``.

    Raises
    ------
    UserError
        ARG001 for a file whose name a suite cannot hold, or inputs of which only some are named.
    """
    inputs = [(one.name, _path(one.path, folder)) for one in case.input]
    if len({name is None for name, _ in inputs}) > 1:
        unnamed = [str(path) for name, path in inputs if name is None]
        raise fail(
            "ARG001",
            "only some inputs are named",
            found=f"no name for {', '.join(unnamed)}",
            expected="--input NAME=FILE for each input",
        )
    if inputs and inputs[0][0] is not None:
        given = ", ".join(f"{_text(str(name))} = {path}" for name, path in inputs)
        given = f"{{ {given} }}"
    elif len(inputs) == 1:
        given = inputs[0][1]
    else:
        given = f"[{', '.join(path for _, path in inputs)}]"
    lines = [
        "[[case]]",
        f"name = {_text(case.name)}",
        f"bundle = {_path(case.bundle, folder)}",
        f"input = {given}",
    ]
    if case.device is not None:
        lines.append(f"device = {_path(case.device, folder)}")
    if case.baseline is not None:
        lines.append(f"baseline = {_path(case.baseline, folder)}")
    return "\n".join([*lines, ""])


def _path(path: Path, folder: Path) -> str:
    return _text(Path(os.path.relpath(path, folder)).as_posix())


def _text(text: str) -> str:
    """Return a TOML string."""
    if not text.isprintable():
        raise fail(
            "ARG001",
            "the path contains control characters",
            place=Place(text),
            found=repr(text),
            expected="printable characters",
            hint="Rename the file.",
        )
    return json.dumps(text, ensure_ascii=False)
