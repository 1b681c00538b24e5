"""Recorded runs that ``nmpsim diff`` and ``nmpsim reduce`` read: reports, arrays, Glow's dumps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nmpsim.diagnostics import fail
from nmpsim.input_files import CHECK_FILE_HINT

if TYPE_CHECKING:
    from nmpsim.analysis.diff import StoredTensor
    from nmpsim.bundle import Bundle


@attrs.frozen
class RecordedRun:
    """Recorded run: a file or folder with the results of a run, and its format."""

    path: Path
    kind: str
    """``report``, ``npz``, ``folder`` (dumps of Glow) or ``console`` (text printed by Glow)."""

    def load_tensors(self, bundle: Bundle | None = None) -> list[StoredTensor]:
        """Load the recorded tensors of the run, which must not be a report.

        ``bundle`` names dumps in a folder without a list of its files.
        """
        from nmpsim.analysis.diff import (
            list_saved_tensors,
            read_console_tensors,
            read_folder_tensors,
        )
        from nmpsim.array_files import ArrayFile

        if self.kind == "folder":
            return read_folder_tensors(self.path, None if bundle is None else bundle.module())
        if self.kind == "console":
            return read_console_tensors(self.path)
        file = ArrayFile(self.path)
        return list(list_saved_tensors(file.keys, file.read))


def open_recorded_run(path: Path) -> RecordedRun:
    """Open a recorded run; the contents of the file or folder determine the format.

    Raises
    ------
    UserError
        FILE001 if the path cannot be read, ARG001 if it is not a recorded run.
    """
    from nmpsim.analysis.diff import is_console_text

    if path.is_dir():
        return RecordedRun(path, "folder")
    if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
        raise fail(
            "FILE001",
            "cannot read the run: it is not a regular file",
            place=path,
            hint="Pass a regular file or a folder.",
        )
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        message = f"cannot read the run: {error.strerror}"
        raise fail("FILE001", message, place=path, hint=CHECK_FILE_HINT) from None
    if start.startswith(b"PK"):
        return RecordedRun(path, "npz")
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return RecordedRun(path, "report")
    if is_console_text(path):
        return RecordedRun(path, "console")
    raise fail(
        "ARG001",
        "the file is not a recorded run",
        place=path,
        found=f"the bytes {start[:8]!r}",
        expected="a JSON report, an .npz file of a run, a folder of Glow's dumps, or the text that"
        " a program instrumented by Glow printed",
    )
