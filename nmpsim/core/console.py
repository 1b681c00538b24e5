"""Exit status of a program, and the text on the consoles of its cores."""

from __future__ import annotations

import re

import numpy as np

from nmpsim.core.state import NEVER, Machine
from nmpsim.report.termination import ConsoleLine


def get_exit_status(machine: Machine) -> int | None:
    """Return the exit status that a core has stored, or None if no core has stored one."""
    status = int(machine.shared[0]["exit_status"])
    return None if status == NEVER else status


def read_console(machine: Machine) -> tuple[ConsoleLine, ...]:
    """Return the lines of all consoles in order of the cycles of their first characters."""
    log = machine.console[: int(machine.shared[0]["logged"])]
    lines = []
    for core in sorted(set((log >> 8 & 255).tolist())):  # np.unique is slow to import
        entries = log[log >> 8 & 255 == core]
        start = 0
        for text in re.findall(rb"[^\n]*\n|[^\n]+", (entries & 255).astype(np.uint8).tobytes()):
            cycle = int(entries[start]) >> 16
            lines.append(ConsoleLine(core, cycle, text.decode(errors="backslashreplace")))
            start += len(text)
    return tuple(sorted(lines, key=lambda line: line.cycle))


def count_dropped_characters(machine: Machine) -> int:
    """Return the number of characters that cores have stored to full consoles."""
    return int(machine.cores["printed"].sum() - machine.shared[0]["logged"])
