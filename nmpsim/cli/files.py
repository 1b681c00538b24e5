"""Output files: checked before the work begins; and what a command prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from nmpsim.atomic import STDOUT, cannot_write, is_special, real_path, write_file
from nmpsim.cli.guard import stdout_unusable
from nmpsim.diagnostics import Place, fail


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse what could not be written, before anything is computed.

    ``STDOUT`` is one of the outputs of a command that prints.

    Raises FILE002 for a missing folder or a folder in the file's place, ARG001 if an output would
    overwrite an input or another output.
    """
    outputs = list(outputs)
    if outputs.count(STDOUT) > 1:
        message = "standard output would hold two things"
        raise fail("ARG001", message, place=Place("-"), hint="name a file for one of them")
    taken = {real_path(path): "is also an input" for path in inputs if path is not None}
    for path in outputs:
        if path is None or path == STDOUT:
            continue
        try:
            _check_output(path)
        except OSError as error:  # a name that is too long, a folder that may not be entered
            raise cannot_write(path, error.strerror or str(error), None) from error
        if is_special(path):
            continue
        real = real_path(path)
        if real in taken:
            message = f"the output file {taken[real]}"
            raise fail("ARG001", message, place=Place(str(path)), hint="choose another name")
        taken[real] = "is named twice"


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise cannot_write(path, "it is a folder", "name a file in it")
    folder = real_path(path).parent
    if not folder.exists():
        raise cannot_write(path, "its folder is missing", f"mkdir -p '{path.parent}'")
    if not folder.is_dir():
        raise cannot_write(path, f"{path.parent} is not a folder", None)
    if not os.access(folder, os.W_OK) and not is_special(path):
        raise cannot_write(path, "its folder is not writable", None)


def what_is_kept(results: Path | None) -> str | None:
    """The file from which an interrupted command goes on, if anything is in it yet."""
    if results is None or not results.is_file():
        return None
    return f"{results} has what is done; the same command goes on from there"


def emit(text: str, output: Path | None = None) -> None:
    """A command's result: into the file ``output``, or to stdout."""
    if output is not None:
        write_file(output, lambda file: file.write(text.encode("utf-8", "backslashreplace")))
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise stdout_unusable(error) from error
