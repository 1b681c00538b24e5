"""What ``nmpsim diff`` is given: reports, saved runs, and what Glow's instrumentation wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nmpsim.diagnostics import Place, fail

if TYPE_CHECKING:
    from nmpsim.analysis.diff import Tensor
    from nmpsim.bundle import Bundle


@attrs.frozen
class Given:
    """An argument and what it is."""

    path: Path
    kind: str
    """report, npz, folder or console."""

    def tensors(self, bundle: Bundle | None = None) -> list[Tensor]:
        """The tensors of a run, not for a report; the bundle tells what unlisted dumps are."""
        from nmpsim.analysis.diff import console_tensors, folder_tensors, saved_tensors
        from nmpsim.cli.arrays import ArrayFile

        if self.kind == "folder":
            return folder_tensors(self.path, None if bundle is None else bundle.module())
        if self.kind == "console":
            return console_tensors(self.path)
        file = ArrayFile(self.path)
        return list(saved_tensors(file.keys, lambda key: file.array(key).read()))


def given(path: Path) -> Given:
    """What an argument is, by its contents; raises FILE001 or ARG001."""
    from nmpsim.analysis.diff import is_console_text

    if path.is_dir():
        return Given(path, "folder")
    if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
        raise fail("FILE001", "cannot read the run: it is no file", place=Place(str(path)))
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        message = f"cannot read the run: {error.strerror}"
        raise fail("FILE001", message, place=Place(str(path))) from None
    if start.startswith(b"PK"):
        return Given(path, "npz")
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return Given(path, "report")
    if is_console_text(path):
        return Given(path, "console")
    raise fail(
        "ARG001",
        "this is nothing that runs can be compared by",
        place=Place(str(path)),
        expected="a JSON report, an .npz file of a run, a folder of Glow's dumps, or the text that"
        " a program instrumented by Glow printed",
    )
