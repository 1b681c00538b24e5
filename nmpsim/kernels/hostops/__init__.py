"""Arithmetic of operations that the device has no unit for and that the host executes instead.

NumPy only, values in and values out: :func:`execute` reads all operands, then gives back new
contents for the output operands and, where an operation clips, what the clip has changed.
``table.HOST_OPS`` lists what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.kernels.hostops.numerics import MOVES_OR_COMPARES, numerics_mismatch
from nmpsim.kernels.hostops.overshoots import StageOvershoot, record_overshoots
from nmpsim.kernels.hostops.table import HOST_OPS
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    ClippedValues,
    HostResult,
    HostTensor,
    HostValueError,
    UnsupportedHostOp,
    integer_limits,
)
from nmpsim.kernels.scale import InvalidScaleError


def supports(
    opcode: str, dtypes: Sequence[np.dtype[Any]], numerics: str = "glow-int"
) -> str | None:
    """Return None if the host can execute ``opcode`` on these dtypes, else the reason in words."""
    operation = HOST_OPS.get(opcode)
    if operation is None:
        return "the host has no such operation"
    return operation.mismatch(dtypes) or numerics_mismatch(opcode, dtypes, numerics)


def execute(
    opcode: str,
    operands: Sequence[HostTensor],
    attributes: Attributes,
    numerics: str = "glow-int",
) -> HostResult:
    """Execute one LIR instruction on the host.

    Parameters
    ----------
    opcode
        As LIR spells it.
    operands
        In print order (outputs, then inputs; LIR_FORMAT section 2). Output operands give dtype,
        shape and quantization, an ``@inout`` one its contents too. One array may appear as input
        and output: all is read before a result exists.
    attributes
        The instruction's, as Python values.
    numerics
        Whose arithmetic to follow.

    Returns
    -------
    HostResult
        New arrays for the output operands; the operands are never written.

    Raises
    ------
    UnsupportedHostOp
        Unknown opcode, element kinds, numerics, attribute value or scale.
    HostValueError
        A value in an operand that the operation cannot take, as an index may be.
    """
    return prepare_operation(opcode, operands, attributes, numerics)()


def prepare_operation(
    opcode: str,
    operands: Sequence[HostTensor],
    attributes: Attributes,
    numerics: str = "glow-int",
) -> Callable[[], HostResult]:
    """Return a function that executes an instruction; each call reads the operands' values anew.

    Raises
    ------
    UnsupportedHostOp
        As far as it is known without values.
    """
    reason = supports(opcode, [operand.dtype for operand in operands], numerics)
    if reason is not None:
        raise UnsupportedHostOp(opcode, reason)
    run = HOST_OPS[opcode].run
    own = [attrs.evolve(operand, numerics=numerics) for operand in operands]

    def do() -> HostResult:
        try:
            # IEEE results are meant: infinities, NaN, wrapping
            with np.errstate(all="ignore"), record_overshoots() as overshoots:
                result = run(*own, attributes=attributes)
        except KeyError as error:
            raise UnsupportedHostOp(opcode, f"without attribute {error.args[0]}") from error
        except InvalidScaleError as error:
            raise UnsupportedHostOp(opcode, str(error)) from error
        return attrs.evolve(result, overshoots=overshoots) if overshoots else result

    return do


__all__ = [
    "HOST_OPS",
    "MOVES_OR_COMPARES",
    "ClippedValues",
    "HostResult",
    "HostTensor",
    "HostValueError",
    "StageOvershoot",
    "UnsupportedHostOp",
    "execute",
    "integer_limits",
    "prepare_operation",
    "supports",
]
