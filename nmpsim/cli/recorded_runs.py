"""Recorded runs (reports, arrays, Glow's dumps), and options that match them with a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from nmpsim.cli.parameters import define_option
from nmpsim.diagnostics import fail
from nmpsim.input_files import CHECK_FILE_HINT, read_text
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.matching import StoredTensor
    from nmpsim.arrays import Arrays
    from nmpsim.bundle import Bundle, Metadata
    from nmpsim.references import ReferenceRun


@frozen(kw_only=True)
class MatchingOptions:
    """Options that match the tensors of a reference with the tensors of a run."""

    reference_layout: Literal["auto", "same", "nchw", "nhwc"] = define_option(
        "Reference: nchw, nhwc or same.",
        "LAYOUT",
        names="--layout",
        default="auto",
    )
    maps: tuple[str, ...] = define_option(
        "Reference name and own name, or a file.", "A=B|FILE", names="--map"
    )

    def read_names(self) -> Mapping[str, str]:
        """Return a mapping from each name in the reference to its name in the run, from ``--map``.

        Raises UserError (ARG001) for an invalid pair.
        """
        return _parse_names(self.maps)


def _parse_names(maps: Sequence[str]) -> Mapping[str, str]:
    lines = []
    for text in maps:
        lines += _read_lines(Path(text)) if _is_file(text) else [text]
    names: dict[str, str] = {}
    for line in lines:
        name, equals, other = (part.strip() for part in line.rpartition("="))
        if not (name and equals and other):
            message = "--map requires a pair of names or a file with such pairs"
            raise fail("ARG001", message, found=line, expected="NAME_IN_A=NAME_IN_B")
        if name in names or other in names.values():
            repeated = name if name in names else other
            raise fail(
                "ARG001",
                "--map contains a name in two pairs",
                found=repeated,
                hint="Name each result in one pair only.",
            )
        names[name] = other
    return names


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # the name is too long
        return False


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file that are neither empty nor comments (``#``)."""
    text = read_text(path, "file of --map")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


@attrs.frozen
class RecordedRun:
    """Recorded run: a file or folder with the results of a run, and its format."""

    path: Path
    kind: str
    """``report``, ``npz``, ``folder`` (dumps of Glow) or ``console`` (text printed by Glow)."""

    def load_tensors(self, bundle: Bundle | None = None) -> list[StoredTensor]:
        """Load the recorded tensors of the run; the file must not be a report.

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


def run_live_reference(
    path: Path,
    metadata: Metadata,
    inputs: Arrays,
    timeout: float | None = None,
    max_memory: int | None = None,
) -> ReferenceRun | None:
    """Run a model file in its own runtime, or return None if the path is no model file.

    Parameters
    ----------
    path : Path
        A reference: a model file, or a file or folder with results.
    metadata : Metadata
        Description of the program.
    inputs : mapping of str to array
        Inputs of the program by name, as :func:`nmpsim.core.inputs.prepare_inputs` returns them.
    timeout, max_memory
        Limits of the runtime's process in seconds and bytes, as in
        :class:`~nmpsim.references.ProcessLimits`.
    """
    from nmpsim.references import ProcessLimits, open_reference

    reference = open_reference(path, metadata, ProcessLimits(timeout, max_memory))
    return None if reference is None else reference.run(inputs)
