"""32-bit and 64-bit words out of unbounded integers."""

from __future__ import annotations

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def unsigned(value: int, bits: int = 32) -> int:
    """The low ``bits`` bits as an unsigned number."""
    return value & ((1 << bits) - 1)


def signed(value: int, bits: int = 32) -> int:
    """The low ``bits`` bits as two's complement."""
    low = unsigned(value, bits)
    return low - (1 << bits) if low >> (bits - 1) else low
