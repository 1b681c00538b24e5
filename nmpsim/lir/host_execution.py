"""Execution of single operations on the host, by the rows of the opcode table.

:func:`execute_operation` reads all operands, then returns new contents for the output operands and,
where an operation saturates, what the saturation has changed. The functions are in
:mod:`nmpsim.kernels.hostops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.kernels.hostops import (
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    find_implementation,
    record_overshoots,
)
from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import make_cast_result, make_result, make_saturated_result
from nmpsim.kernels.scale import InvalidScaleError
from nmpsim.lir.opcode import IN, WEIGHTED, HostProfiles, Opcode, OpcodeKind
from nmpsim.lir.opcodes import NO_WORK, OPCODES

check_exhaustive(
    "the host",
    {name for name, row in OPCODES.items() if row.run or row.formula} - NO_WORK,
    OPCODES.keys() - NO_WORK,
)

_OF_TFLITE = ("rescalequantized", "resizebilinear")
"""Operations of profile q31, besides those of every profile."""
_STORES_INTEGERS = frozenset({OpcodeKind.CONVERSION, OpcodeKind.RESCALE, OpcodeKind.MOVE})
"""Kinds whose formula does not apply to integers of any width."""


def find_unsupported_reason(
    opcode: str, dtypes: Sequence[np.dtype[Any]], numerics: str = "glow-int"
) -> str | None:
    """Return why the host cannot execute an operation on operand dtypes, or None if it can."""
    row = OPCODES.get(opcode)
    if row is None or not row.signatures:
        return "the host does not support the operation"
    return row.find_mismatch(dtypes) or _numerics_mismatch(row, dtypes, numerics)


def _numerics_mismatch(row: Opcode, dtypes: Sequence[np.dtype[Any]], numerics: str) -> str | None:
    """Return why the host cannot follow a profile in an operation, or None."""
    arithmetic = ARITHMETIC.get(numerics)
    if arithmetic is None:
        return f"unknown numerics {numerics}"
    names = [dtype.name for dtype in dtypes]
    if not {"int8", "int16"} & set(names) or row.profiles is not HostProfiles.GLOW:
        return None
    if row.name == "softmax":
        has_formula = names[0] in arithmetic.softmax
        return (
            None
            if has_formula
            else f"the host does not support a softmax of {names[0]} with numerics {numerics}"
        )
    is_nmp = row.kind is OpcodeKind.HOST or (row.kind not in WEIGHTED and names[0] == "int8")
    if (
        numerics in ("glow-int", "glow-float")
        or (numerics == "nmp" and is_nmp)
        or (numerics == "q31" and row.name in _OF_TFLITE)
    ):
        return None
    return f"the host does not support {row.name} with numerics {numerics}"


def execute_operation(
    opcode: str,
    operands: Sequence[HostTensor],
    attributes: Attributes,
    numerics: str = "glow-int",
) -> HostResult:
    """Execute an LIR operation on the host and return its results.

    Parameters
    ----------
    opcode : str
        Opcode, as spelled in LIR.
    operands : sequence of HostTensor
        All operands in print order. Output operands give dtype, shape and quantization, an
        ``@inout`` one its contents too. One array may appear as input and output: all is read
        before a result exists.
    attributes : mapping
        Attributes of the instruction, as Python values.
    numerics : str
        Numerics profile to follow.

    Returns
    -------
    HostResult
        New arrays for the output operands; the operands are never written.

    Raises
    ------
    UnsupportedHostOp
        Unknown opcode, dtypes, numerics, attribute value or scale.
    HostValueError
        An operand value that the operation cannot take, such as an index out of range.
    """
    return prepare_operation(opcode, operands, attributes, numerics)()


def prepare_operation(
    opcode: str,
    operands: Sequence[HostTensor],
    attributes: Attributes,
    numerics: str = "glow-int",
) -> Callable[[], HostResult]:
    """Check an operation; return a function that executes it on the operands' current values.

    Raises
    ------
    UnsupportedHostOp
        As far as it is known without values.
    """
    reason = find_unsupported_reason(opcode, [operand.dtype for operand in operands], numerics)
    if reason is not None:
        raise UnsupportedHostOp(opcode, reason)
    own = [attrs.evolve(operand, numerics=numerics) for operand in operands]

    def do() -> HostResult:
        try:
            # IEEE results are meant: infinities, NaN, wrapping
            with np.errstate(all="ignore"), record_overshoots() as overshoots:
                result = execute_unchecked(OPCODES[opcode], own, attributes)
        except KeyError as error:
            raise UnsupportedHostOp(opcode, f"the attribute {error.args[0]} is missing") from error
        except InvalidScaleError as error:
            raise UnsupportedHostOp(opcode, str(error)) from error
        return attrs.evolve(result, overshoots=overshoots) if overshoots else result

    return do


def execute_unchecked(
    row: Opcode, operands: Sequence[HostTensor], attributes: Attributes
) -> HostResult:
    """Execute an operation without checks, with the formula or function of its opcode."""
    if row.formula is None or (row.run and not _formula_applies(row, operands)):
        result = find_implementation(row.run)(*operands, attributes=attributes)
        return make_result(result, operands)
    # Attributes that are extensions say how integers are rounded.
    numbers = [attributes[a.name] for a in row.attributes if not a.is_extension]
    roles = zip(row.operands, operands, strict=True)
    sources = [operand for role, operand in roles if role.kind == IN]
    if sources[0].dtype in (np.int8, np.int16):
        reals = row.formula(*(source.dequantize() for source in sources), *numbers)
        return make_saturated_result(quantize_reals(reals, operands[0]), operands[0])
    if any(source.quantized for source in sources):
        reason = f"arithmetic on quantized {sources[0].dtype} is not supported"
        raise UnsupportedHostOp(row.name, reason)
    return make_cast_result(
        row.formula(*(source.values for source in sources), *numbers), operands[0]
    )


def _formula_applies(row: Opcode, operands: Sequence[HostTensor]) -> bool:
    """Return whether the formula gives the result of real numbers or index integers."""
    if row.kind in _STORES_INTEGERS:
        return all(operand.is_float for operand in operands)
    return not any(
        operand.quantized or operand.dtype in (np.int8, np.int16) for operand in operands
    )
