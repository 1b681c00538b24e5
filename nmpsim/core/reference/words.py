"""Conversion of unbounded integers to machine words."""

from __future__ import annotations

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def to_unsigned(value: int, bits: int = 32) -> int:
    """Return the low ``bits`` bits of ``value`` as an unsigned integer."""
    return value & ((1 << bits) - 1)


def to_signed(value: int, bits: int = 32) -> int:
    """Return the low ``bits`` bits of ``value`` as a signed (two's complement) integer."""
    low = to_unsigned(value, bits)
    return low - (1 << bits) if low >> (bits - 1) else low
