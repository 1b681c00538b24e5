"""How much memory something takes, of what Python and NumPy allocate."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most(nbytes: float) -> Iterator[None]:
    """The most that is allocated meanwhile is no more."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= nbytes
