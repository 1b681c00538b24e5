"""``X.tensors.json`` files with exact scales."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse
from nmpsim.lir.scales import read_scales_file, resolve_exact_scales

from ..mutate import mutate_json_bytes
from ..target import ROOT, Target, allow_errors, write_file

DIGITS = ROOT / "programs" / "digits"


@cache
def module() -> Module:
    """Return the program whose scales the file contains."""
    return parse((DIGITS / "digits.lir.txt").read_text(encoding="utf-8"))


def run(data: bytes) -> None:
    """Read a tensor file for the program."""
    path = write_file(data, "digits.tensors.json")
    with allow_errors("CONST004", "LIR"):
        try:
            resolve_exact_scales(module(), read_scales_file(path), path)
        except UserError as error:
            assert all(one.place is not None for one in error.diagnostics)
            raise


def seeds() -> Iterator[bytes]:
    """Yield the program's own tensor file."""
    yield (DIGITS / "digits.tensors.json").read_bytes()


TARGET = Target(run, seeds, mutate_json_bytes)
