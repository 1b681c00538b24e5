"""Check of the memory accesses of a program against the allocation of each pointer."""

from nmpsim.debugger.pointer_check.check import PointerCheck

__all__ = ["PointerCheck"]
