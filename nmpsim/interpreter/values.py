"""Values that an operation cannot take, as an error that says where in the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nmpsim.diagnostics import fail
from nmpsim.kernels.hostops import HostValueError
from nmpsim.lir.nodes import Instruction


@contextmanager
def values_taken(instruction: Instruction, file: str | None) -> Iterator[None]:
    """Within, a value that the instruction cannot take is a ``UserError`` HOST001."""
    try:
        yield
    except HostValueError as error:
        place = instruction.span.place(file)
        message = f"%{instruction.name} cannot be calculated"
        raise fail("HOST001", message, place=place, found=error) from None
