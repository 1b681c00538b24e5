"""Arithmetic of operations that the device has no unit for and that the host executes instead.

NumPy only, values in and values out. :mod:`nmpsim.lir.opcodes` says which function executes an
operation, and :func:`nmpsim.lir.host_execution.execute_operation` calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from nmpsim.kernels.hostops.overshoots import StageOvershoot, record_overshoots
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    HostValueError,
    SaturatedValues,
    UnsupportedHostOp,
    get_integer_limits,
)


@cache
def find_implementation(path: str) -> Callable[..., Any]:
    """Return the function ``MODULE.FUNCTION`` of this package; import its module if necessary.

    A program uses few of the host's operations, so their modules are imported when first used.
    """
    module, name = path.split(".")
    found: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


__all__ = [
    "Attributes",
    "SaturatedValues",
    "HostResult",
    "HostTensor",
    "HostValueError",
    "StageOvershoot",
    "UnsupportedHostOp",
    "find_implementation",
    "get_integer_limits",
    "record_overshoots",
]
