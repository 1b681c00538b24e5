"""Interface of fuzz targets: a function of bytes that raises only for a defect."""

from __future__ import annotations

import atexit
import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

import attrs

from nmpsim.diagnostics import CODES, UserError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORPUS = HERE / "corpus"
MAX_BYTES = 1 << 17
"""Size limit of an input of any format."""
MAX_TOLD = 20_000
"""Length limit of an error message per diagnostic."""


def no_seeds() -> tuple[bytes, ...]:
    """Return no seeds, for formats that use only the corpus."""
    return ()


@attrs.frozen
class Target:
    """Fuzz target of one format."""

    run: Callable[[bytes], None]
    """Function that judges one input and raises only for a defect."""
    seeds: Callable[[], Iterable[bytes]] = no_seeds
    """Function that returns initial inputs besides the corpus, called when a campaign begins."""
    mutate: Callable[[bytes, Random], bytes] | None = None
    """Mutator that keeps the structure of an input; it raises ValueError if there is none."""
    seconds: float = 5.0
    """Processor time limit of an input."""
    most_bytes: int = attrs.field(default=1 << 16, validator=attrs.validators.le(MAX_BYTES))
    """Size limit of an input."""


def list_formats() -> list[str]:
    """Return the names of all formats."""
    return sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))


def load_target(name: str) -> Target:
    """Return the fuzz target of a format."""
    found: Target = importlib.import_module(f".targets.{name}", __package__).TARGET
    return found


def list_corpus(name: str) -> list[Path]:
    """Return the corpus files of a format."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())


@contextmanager
def allow_errors(*prefixes: str) -> Iterator[None]:
    """Accept only errors whose code is MEM001 or begins with one of these prefixes.

    MEM001 reports a memory request that is refused before the allocation.
    """
    try:
        yield
    except UserError as error:
        assert error.diagnostics, "an error without a diagnostic"
        for one in error.diagnostics:
            assert one.code in CODES
            assert one.code.startswith(("MEM001", *prefixes)), (
                f"unexpected {one.code}: {one.message}"
            )
        assert len(str(error)) <= MAX_TOLD * len(error.diagnostics), "a message of absurd length"


@cache
def get_folder() -> Path:
    """Return a temporary folder of this process (in memory during a campaign)."""
    made = Path(tempfile.mkdtemp(prefix="nmpsim-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def write_file(data: bytes, name: str = "input") -> Path:
    """Write the bytes to a file and return its path."""
    path = get_folder() / name
    path.write_bytes(data)
    return path
