"""How one result of a tensor instruction was computed, step by step, from the scratchpad.

Operands are read from the machine as it stood when the instruction was issued, and evaluated with
the reference engine's own functions. The explanation therefore holds for any program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import attrs
import numpy as np

from nmpsim.core.reference.arithmetic import FormulaStep, FormulaSteps, make_step
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.mac import (
    PartialSums,
    accumulate,
    read_channel_tables,
    read_scale_tables,
    read_windows,
    unpack_weights,
)
from nmpsim.core.reference.operands import (
    Descriptor,
    Scale,
    Scratchpad,
    compute_addresses,
    get_element_type,
    get_scale,
)
from nmpsim.core.reference.program_formulas import find_formulas
from nmpsim.core.reference.requantize import (
    compute_initial_sums,
    finish_sums,
    make_requantization_parameters,
)
from nmpsim.core.reference.saturation import LayerCounters, ResultPositions
from nmpsim.core.reference.vector import (
    compute_average,
    compute_eltwise,
    compute_maximum,
    rescale_values,
)
from nmpsim.core.state import Int64s, Machine
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.table import INSTRUCTIONS, Unit
from nmpsim.isa.words import PART_FIRST, PART_ONLY, RHS_INT32


@attrs.frozen
class Term:
    """Term of a result: a product in a sum, or an element of a pooling window."""

    at: tuple[int, ...]
    """Row, column and channel in the window; the inner index in a matrix product."""
    address: int
    """Scratchpad address of the input."""
    input: float
    """Value of the input, an integer unless the value was only moved."""
    weight: int | None = None
    """Weight minus its zero point; None if the operation has no weights."""
    weight_address: int | None = None
    """Scratchpad address of the weight."""

    @property
    def product(self) -> float:
        """Input times weight, or the input itself if the operation has no weights."""
        return self.input if self.weight is None else self.input * self.weight


@attrs.frozen
class ArithmeticStep:
    """Step of an element's computation: name, formula with its numbers, and value."""

    name: str
    formula: str
    value: float


@attrs.frozen
class ResultTrace:
    """Trace of one output element: the terms and the arithmetic steps that compute it."""

    terms: tuple[Term, ...]
    steps: tuple[ArithmeticStep, ...]
    result: float
    """Value that the arithmetic gives; the device should have written the same value."""


@attrs.frozen
class OutputElement:
    """Element of a tensor instruction's output, given by its position."""

    at: tuple[int, ...]
    """Index along each dimension but the innermost: row and pixel, or row; all four of a
    transpose."""
    channel: int
    """Index along the innermost dimension."""

    @property
    def y(self) -> int:
        """Row of the element in the output, or 0 if the output has no rows."""
        return self.at[0] if self.at else 0

    @property
    def x(self) -> int:
        """Column of the element in the output, or 0 if the output has no columns."""
        return self.at[1] if len(self.at) > 1 else 0


class _AddressScratchpad(Scratchpad):
    """Scratchpad whose bytes hold their own addresses.

    The reference engine's functions that gather operands return the operands' addresses from it.
    """

    def __init__(self) -> None:
        pass

    def read(self, nbytes: int, addresses: Int64s) -> Int64s:
        """Return the addresses themselves."""
        return addresses


_ADDRESSES = _AddressScratchpad()


class _NoCounters(LayerCounters):
    def __init__(self) -> None:
        pass

    def count_saturated(self, *_: Any) -> None:
        """Ignore a saturated value."""


_UNCOUNTED = ResultPositions(_NoCounters(), np.zeros(1, np.int64))
"""Position of one result whose saturation is not counted."""


def _evaluate(steps: FormulaSteps) -> tuple[ArithmeticStep, ...]:
    """Return the steps of a formula with their numbers; the formula has one value."""
    with np.errstate(all="ignore"):
        return tuple(map(_describe_step, steps))


def _describe_step(step: FormulaStep) -> ArithmeticStep:
    """Return one step of a formula as text with its numbers."""
    value = _single(step.value)
    formula = step.formula.format_map({name: _single(n) for name, n in step.numbers.items()})
    if step.exact is not None and _single(step.exact) != value:
        formula += f" = {_single(step.exact)}, saturated"
    return ArithmeticStep(step.name, formula, value)


def _single(value: Any) -> Any:
    """Return the only element of an array; text is returned unchanged."""
    return value if isinstance(value, str) else np.asarray(value).reshape(-1)[:1].tolist()[0]


def _read_value(spm: Scratchpad, address: int, nbytes: int) -> int:
    """Read a signed integer, which need not be aligned."""
    return int.from_bytes(bytes(spm.view(address, nbytes)), "little", signed=True)


def _make_trace(terms: tuple[Term, ...], *steps: ArithmeticStep) -> ResultTrace:
    return ResultTrace(terms, steps, int(steps[-1].value))


# --- sums of products -------------------------------------------------------------------------


def _window_operands(spm: Scratchpad, d: Descriptor, at: OutputElement) -> tuple[Int64s, Int64s]:
    channels, is_depthwise = _input_channels(d, at), "channels_count" in d
    depth = d["channels_count"] if is_depthwise else d["groups"] * d["in_channels"]
    inputs = read_windows(spm, d, depth)[at.y, at.x][:, channels].reshape(-1)
    if not is_depthwise:
        return inputs, unpack_weights(spm, d)[at.channel]
    nbytes, taps = get_element_type(d).nbytes, d["kernel_h"] * d["kernel_w"]
    weights = compute_addresses(d["weights"] + at.channel * nbytes, (taps, depth * nbytes))
    return inputs, spm.read(nbytes, weights)


def _input_channels(d: Descriptor, at: OutputElement) -> range:
    """Return the input channels that an output channel is computed from."""
    if "channels_count" in d:
        return range(at.channel, at.channel + 1)
    first = at.channel // (d["out_channels"] // d["groups"]) * d["in_channels"]
    return range(first, first + d["in_channels"])


def _gemm_operands(spm: Scratchpad, d: Descriptor, at: OutputElement) -> tuple[Int64s, Int64s]:
    nbytes = get_element_type(d).nbytes
    lhs = compute_addresses(d["lhs"] + at.y * d["lhs_stride"], (d["inner"], nbytes))
    rhs = compute_addresses(d["rhs"] + at.channel * nbytes, (d["inner"], d["rhs_stride"]))
    return spm.read(nbytes, lhs), spm.read(nbytes, rhs)


SUMS: Mapping[str, Callable[[Scratchpad, Descriptor, OutputElement], tuple[Int64s, Int64s]]] = {
    "conv": _window_operands,
    "dwconv": _window_operands,
    "gemm": _gemm_operands,
}
"""Descriptor -> function that reads the factors of one result's products, in their order."""


def _channel_count(d: Descriptor) -> int:
    return d["out_channels"] if "out_channels" in d else d["channels_count"]


def list_terms(
    machine: Machine, core: int, name: str, descriptor: Descriptor, at: OutputElement
) -> tuple[Term, ...]:
    """Return the terms that an instruction adds to the sum of an output element."""
    return _sum_terms(Scratchpad(Core(machine, core)), name, descriptor, at)


def _sum_terms(spm: Scratchpad, name: str, d: Descriptor, at: OutputElement) -> tuple[Term, ...]:
    inputs, weights = SUMS[name](spm, d, at)
    addresses, weight_addresses = SUMS[name](_ADDRESSES, d, at)
    if name == "gemm":
        places: Iterable[tuple[int, ...]] = product(range(d["inner"]))
        inputs, weights = inputs - d["lhs_offset"], weights - d["rhs_offset"]
    else:
        places = product(range(d["kernel_h"]), range(d["kernel_w"]), _input_channels(d, at))
        weights = weights - read_scale_tables(spm, d, _channel_count(d))[0][at.channel]
    columns = (addresses, inputs, weights, weight_addresses)
    return tuple(map(Term, places, *(column.tolist() for column in columns)))


def _trace_sum(
    spm: Scratchpad, name: str, d: Descriptor, at: OutputElement, earlier: Sequence[Term]
) -> ResultTrace:
    """Trace a sum of products; ``earlier`` are the terms that preceding instructions added."""
    own, c, begin = _sum_terms(spm, name, d, at), at.channel, 0
    steps: list[ArithmeticStep] = []
    formulas = find_formulas(spm, d)
    if name == "gemm":
        row, columns, out = at.y, d["columns"], get_scale(d, "out")
        q = make_requantization_parameters(d, formulas, np.zeros(1, np.int64), Scale(0, 0, 0), out)
        factors = "(l - O_l) * (r - O_r)"
    else:
        row, columns, factors = at.y * d["out_w"] + at.x, _channel_count(d), "x * (w - O_w)"
        bias, zero = (table[c : c + 1] for table in read_channel_tables(spm, d, columns))
        _, *scales = read_scale_tables(spm, d, columns)
        q = make_requantization_parameters(
            d, formulas, bias, *(_select_channel(scale, c) for scale in scales)
        )
        steps += _evaluate(compute_initial_sums(d, zero, q, _UNCOUNTED))
        begin = int(steps[-1].value)
    if d.get("part", PART_ONLY) not in (PART_ONLY, PART_FIRST):
        begin = int(PartialSums(spm, d, columns).read(row)[c])
        steps.append(ArithmeticStep("sum before", "what the parts before left in memory", begin))
    products = np.array([[term.product for term in own]], np.int64)
    element = get_element_type(d)
    sums = accumulate(np.array([begin]), products, element, _UNCOUNTED)
    formula = f"sum of {len(own)} products {factors}"
    width = f"of {element.accumulator_bits} bits, saturating"
    steps += [
        ArithmeticStep("products", formula, int(products.sum())),
        ArithmeticStep("accumulator", width, int(sums[0])),
        *_evaluate(finish_sums(sums, d, q, _UNCOUNTED)),
    ]
    return _make_trace((*earlier, *own), *steps)


def _select_channel(scale: Scale, channel: int) -> Scale:
    """Return the scale of one channel; a scale of all channels is returned unchanged."""

    def one(value: Any) -> Any:
        return value if np.ndim(value) == 0 else np.asarray(value)[channel : channel + 1]

    return Scale(one(scale.pre), one(scale.mul), one(scale.post))


# --- vector unit ------------------------------------------------------------------------------

_Operand = tuple[tuple[int, ...], int, int]
"""Place in the window, scratchpad address and size in bytes of a value."""


def _list_taps(_: Scratchpad, d: Descriptor, at: OutputElement) -> Iterator[_Operand]:
    """Yield the operands in a pooling window, without padding."""
    top, left = at.y * d["stride_h"] - d["pad_top"], at.x * d["stride_w"] - d["pad_left"]
    nbytes = get_element_type(d).nbytes
    start = d["input"] + at.channel * nbytes
    for row, column in product(range(d["kernel_h"]), range(d["kernel_w"])):
        y, x = top + row, left + column
        if 0 <= y < d["in_h"] and 0 <= x < d["in_w"]:
            address = start + y * d["in_row_stride"] + x * d["in_pixel_stride"]
            yield (row, column, at.channel), address, nbytes


def _list_pair(_: Scratchpad, d: Descriptor, at: OutputElement) -> Iterator[_Operand]:
    nbytes = get_element_type(d).nbytes
    sizes = {"lhs": nbytes, "rhs": 4 if d["rhs_kind"] == RHS_INT32 else nbytes}
    for index, (side, size) in enumerate(sizes.items()):
        yield (index,), d[side] + at.y * d[f"{side}_stride"] + at.channel * size, size


def _list_input(_: Scratchpad, d: Descriptor, at: OutputElement) -> Iterator[_Operand]:
    nbytes = get_element_type(d).nbytes
    yield (at.channel,), d["input"] + at.channel * nbytes, nbytes


def _list_table_entry(spm: Scratchpad, d: Descriptor, at: OutputElement) -> Iterator[_Operand]:
    address = d["input"] + at.channel
    index = _read_value(spm, address, 1) + 128
    yield (at.channel,), address, 1
    yield (index,), d["table"] + index, 1


def _list_moved(_: Scratchpad, d: Descriptor, at: OutputElement) -> Iterator[_Operand]:
    offset = sum(index * d[f"in_stride_{n}"] for n, index in enumerate(at.at))
    yield at.at, d["input"] + offset, d["element_bytes"]


def _fill(_: Int64s, d: Descriptor, __: None) -> FormulaSteps:
    bits = 8 * get_element_type(d).nbytes
    value = (d["value"] + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    yield make_step("value", value, "the descriptor's, everywhere")


def _look_up(x: Int64s, _: Descriptor, __: None) -> FormulaSteps:
    yield make_step("entry", x[1], "table[{x} + 128]", x=x[0])


def _copy(x: Int64s, _: Descriptor, __: None) -> FormulaSteps:
    yield make_step("copied", x, "as it is")


VECTOR: Mapping[
    str,
    tuple[
        Callable[[Scratchpad, Descriptor, OutputElement], Iterable[_Operand]],
        Callable[[Int64s, Descriptor, Any], FormulaSteps],
    ],
] = {
    "maxpool": (_list_taps, lambda taps, d, _: compute_maximum(taps, d)),
    "avgpool": (_list_taps, lambda taps, d, own: compute_average(taps, d, own, _UNCOUNTED)),
    "eltwise": (_list_pair, lambda x, d, own: compute_eltwise(x[0], x[1], d, own, _UNCOUNTED)),
    "rescale": (_list_input, lambda x, d, own: rescale_values(x[0], d, own, _UNCOUNTED)),
    "lut": (_list_table_entry, _look_up),
    "fill": (lambda *_: (), _fill),
    "transpose": (_list_moved, _copy),
}
"""Descriptor of the vector unit -> function that lists the operands of one result, and formula of
their values [operands, 1], which takes the formulas of the profile, if there is one."""
check_exhaustive(
    f"{__name__}.SUMS and VECTOR",
    (*SUMS, *VECTOR),
    (i.descriptor for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)


def trace_result(
    machine: Machine,
    core: int,
    name: str,
    descriptor: Descriptor,
    at: OutputElement,
    earlier_terms: Sequence[Term] = (),
) -> ResultTrace:
    """Trace how an instruction computes an element; return the terms and arithmetic steps.

    Parameters
    ----------
    machine : Machine
        State just before the instruction was issued.
    core : int
        Core that issues it.
    name : str
        Name of its descriptor.
    descriptor : mapping of str to int
        Words of its descriptor.
    at : OutputElement
        Element of the result.
    earlier_terms : sequence of Term, optional
        Terms of the sum that preceding instructions added.
    """
    spm = Scratchpad(Core(machine, core))
    if name in SUMS:
        return _trace_sum(spm, name, descriptor, at, earlier_terms)
    list_operands, formula = VECTOR[name]
    terms = tuple(
        Term(place, address, _read_value(spm, address, nbytes))
        for place, address, nbytes in list_operands(spm, descriptor, at)
    )
    values = np.array([term.input for term in terms], np.int64).reshape(-1, 1)
    own = None
    if "profile" in descriptor:
        own = find_formulas(spm, descriptor)
    return _make_trace(terms, *_evaluate(formula(values, descriptor, own)))
