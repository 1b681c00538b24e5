"""Blocks of the heap: calls of the functions that allocate and free them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from nmpsim.bundle.read import Bundle
from nmpsim.debugger.pointer_check.allocations import MemoryObject
from nmpsim.diagnostics import did_you_mean, fail

AllocatorRole = Literal["malloc", "calloc", "realloc", "memalign", "free"]
"""Function of the C library that an allocator's function has the parameters of."""
_FUNCTIONS: dict[str, AllocatorRole] = {
    "malloc": "malloc", "calloc": "calloc", "realloc": "realloc", "memalign": "memalign",
    "aligned_alloc": "memalign", "free": "free",
}  # fmt: skip
_MASK = 0xFFFF_FFFF
A0 = 10


@attrs.frozen
class AllocatorCall:
    """Call of a function that allocates or frees a block, until it returns."""

    role: AllocatorRole
    arguments: tuple[int, int]
    return_address: int
    stack_pointer: int
    site: str
    """Function and source line of the call."""

    @property
    def nbytes(self) -> int:
        """Size of the block that the function allocates."""
        first, second = self.arguments
        sizes = {"malloc": first, "calloc": first * second}
        return sizes.get(self.role, second) & _MASK


class Heap:
    """Heap of a program.

    Parameters
    ----------
    bundle : Bundle
        The program.
    allocators : sequence of str
        Functions besides those of the C library, as ``ALLOCATE`` or ``ALLOCATE,FREE``. The first
        has the parameter of ``malloc``, the second that of ``free``.

    Raises
    ------
    UserError
        ARG001 if the program does not have one of the functions.
    """

    def __init__(self, bundle: Bundle, allocators: Sequence[str] = ()) -> None:
        self.functions: dict[int, AllocatorRole] = {
            bundle.symbols[name]: role
            for name, role in _FUNCTIONS.items()
            if name in bundle.symbols
        }
        """Address of a function -> its role."""
        for name, role in _list_roles(allocators):
            if name not in bundle.symbols:
                hint = did_you_mean(name, bundle.symbols) or "An inlined function has no symbol."
                raise fail(
                    "ARG001", "the program has no function of this name",
                    found=f"--allocator {name}", expected="a symbol of the program", hint=hint,
                )  # fmt: skip
            self.functions[bundle.symbols[name]] = role
        self._blocks: dict[int, MemoryObject] = {}
        """Address -> block, also a freed one."""

    def find_misuse(self, role: AllocatorRole, address: int) -> str:
        """Return why a block cannot be freed or reallocated, or "" if it can."""
        if address == 0 or role not in ("free", "realloc"):
            return ""
        block = self._blocks.get(address)
        if block is None:
            return f"{role} of {address:#x}, which is not the start of a block"
        return f"{role} of {block.describe()}, {block.end_reason}" if block.end_reason else ""

    def finish_call(self, call: AllocatorCall, address: int) -> MemoryObject | None:
        """Change the blocks after a call that returned an address; return a new block or None."""
        if call.role == "free" or (call.role == "realloc" and address):
            old = self._blocks.get(call.arguments[0])
            if old is not None and not old.end_reason:
                old.end_reason = f"which was freed by {call.site}"
        if call.role == "free" or address == 0:
            return None
        block = MemoryObject("block", address, call.nbytes, f"allocated by {call.site}")
        self._blocks[address] = block
        return block

    def get_size(self, address: int) -> int:
        """Return the bytes of the block at an address; 0 if there is none."""
        block = self._blocks.get(address)
        return 0 if block is None or block.end_reason else block.nbytes


def _list_roles(allocators: Sequence[str]) -> Iterator[tuple[str, AllocatorRole]]:
    """Yield the function names of allocators with their roles."""
    for words in allocators:
        allocate, _, free = words.partition(",")
        yield allocate, "malloc"
        if free:
            yield free, "free"
