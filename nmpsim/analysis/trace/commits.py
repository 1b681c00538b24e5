"""A log of all executed instructions, for comparison with another processor in lock step.

A line is a commit line of Spike (``spike --log-commits``), followed by a comment with fields that
Spike does not print.
"""

from __future__ import annotations

from typing import IO

from nmpsim.analysis.trace.selection import Selection
from nmpsim.core.reference.commits import Commit
from nmpsim.isa.table import InstructionKind


class CommitLog:
    """Log of the commits of selected cores; the file is written during the run."""

    def __init__(self, file: IO[bytes], chosen: Selection) -> None:
        """Create a writer to an open binary file."""
        self._file = file
        self._chosen = chosen

    def __call__(self, commit: Commit) -> None:
        """Write the line of a commit."""
        if self._chosen.cores is None or commit.core in self._chosen.cores:
            self._file.write(format_commit(commit).encode("ascii") + b"\n")


def format_commit(commit: Commit) -> str:
    """Format a commit as a line of a commit log, without a line break."""
    core = f"core {commit.core:3}:"
    if commit.cause is not None:
        cause = commit.cause
        return (
            f"{core} exception trap_{cause.name.lower()}, epc {commit.pc:#010x},"
            f" tval {commit.trap_value:#010x} # {commit.order} cause {cause.value}"
        )
    line = f"{core} 3 {commit.pc:#010x} ({commit.word:#010x})"
    if commit.rd:
        line += f" {f'x{commit.rd}':3} {commit.value:#010x}"
    for csr, value in commit.csrs:
        line += f" c{csr.value}_{csr.name.lower()} {value:#010x}"
    instruction = commit.instruction
    assert instruction is not None  # only traps have none
    if instruction.access_bytes:
        line += f" mem {commit.address:#010x}"
    if commit.stored is not None:
        line += f" {commit.stored:#0{2 + 2 * instruction.access_bytes}x}"
    line += f" # {commit.order}"
    if instruction.kind in (InstructionKind.TENSOR, InstructionKind.SYNC):
        line += f" {instruction.mnemonic}"
    if instruction.unit is not None:
        line += f" {instruction.unit.name.lower()}"
    return line
