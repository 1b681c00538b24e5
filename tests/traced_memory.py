"""Measure the memory that Python and NumPy allocate."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most(nbytes: float) -> Iterator[None]:
    """Assert that the peak of memory allocated in the ``with`` block is at most ``nbytes``."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= nbytes
