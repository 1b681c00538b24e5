"""Tensors of recorded runs, and the pairing of the tensors of two runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, did_you_mean, fail
from nmpsim.kernels.array_types import Float64s
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix
from nmpsim.lir.nodes import TensorType

_NUMBERED = re.compile(r"(?:act/)?(\d{1,9}):([^:]+)(?::(.+))?")
_NO_RESULTS = ("const/", "input/")
SavedKey = tuple[int | None, str, str | None]
"""Number, name and operand of an LIR instruction; None if the key of an array lacks them."""
_OUTPUT = "output/"


@attrs.frozen(eq=False)
class KnownValues:
    """Known elements of a tensor and their precision."""

    shape: Shape
    array: Array
    """First known elements in row-major order: one-dimensional."""
    tolerance: float | Array = 0.0
    """Half a unit of the last printed digit of each number; 0 if the values are exact."""
    is_typed: bool = True
    """Whether the array has the tensor's element type; otherwise it is float64."""

    @property
    def is_complete(self) -> bool:
        """Whether all elements are known."""
        return self.array.size == math.prod(self.shape)

    @classmethod
    def from_array(cls, array: Array) -> KnownValues:
        """Create a tensor whose elements are all known exactly from an array."""
        return cls(array.shape, array.reshape(-1))


@attrs.frozen(eq=False)
class StoredTensor:
    """Tensor of a recorded run; its elements are read on demand."""

    name: str
    """Name of the LIR instruction."""
    operand: str | None
    """Operand of the instruction; None for its result."""
    is_result: bool
    type: TensorType | None
    load: Callable[[], KnownValues]
    number: int | None = None
    """Number of the LIR instruction; None if unknown."""


def parse_saved_key(key: str) -> SavedKey | None:
    """Parse the key of a saved array, or return None for the key of a constant or an input.

    Keys are ``NNNN:name`` (``--save-layers``), ``act/NNNN:name:operand`` (a recorded run of Glow)
    or names (``--save-outputs``).
    """
    if key.startswith(_NO_RESULTS):
        return None
    match = _NUMBERED.fullmatch(key)
    if match is None:
        return None, key, None
    number, name, operand = match.groups()
    return int(number), name, operand


def list_saved_tensors(keys: Iterable[str], read: Callable[[str], Array]) -> Iterator[StoredTensor]:
    """Yield the tensors in an ``.npz`` file of a run, without constants and inputs.

    Parameters
    ----------
    keys
        Keys of the arrays; see :func:`parse_saved_key`.
    read
        Function that returns an array by its key.
    """
    seen = set()
    for key in keys:
        parsed = parse_saved_key(key)
        if parsed is None:
            continue
        number, name, operand = parsed
        name = name.removeprefix(_OUTPUT)
        yield StoredTensor(
            name=name,
            operand=operand,
            is_result=name not in seen,
            type=None,
            load=partial(_load, read, key),
            number=number,
        )
        seen.add(name)


def _load(read: Callable[[str], Array], key: str) -> KnownValues:
    return KnownValues.from_array(read(key))


LAYOUTS = ("auto", "same", "nchw", "nhwc")
"""Layouts that the first run's 4-D tensors may have; ``auto`` follows the shapes."""
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_ORDERS = {"nchw": (_TO_NHWC, "NCHW"), "nhwc": (_TO_NCHW, "NHWC")}
_ONNX_OUTPUT = "_output_0"
"""Suffix that PyTorch's exporter appends to an operation's name for its result."""
Pair = tuple[StoredTensor, StoredTensor]
"""A tensor of the second run and the matching tensor of the first run."""


def pair_tensors(
    mine: Sequence[StoredTensor],
    theirs: Sequence[StoredTensor],
    names: Mapping[str, str],
    origins: Mapping[str, str],
) -> list[Pair]:
    """Return pairs of tensors that both runs have, in the order of ``mine``.

    Operands are paired by name and operand. Remaining results are paired by the operation they come
    from or by their name as Glow would write it; then by number, shape and type; then, for runs
    with other names, by a shape that only one result of each has. Ambiguous tensors are not paired.

    Raises UserError (DIFF001) for names that no result has.
    """
    found = [*_pair_mapped(mine, theirs, names)]
    mapped = {one for pair in found for one in pair}
    found += _pair_by_name(*([one for one in run if one not in mapped] for run in (mine, theirs)))
    keys = [_strip_model_name(origins), _numbered_key]
    if any(one.number is None for run in (mine, theirs) for one in run):
        keys.append(
            _shape_key
        )  # two runs with numbers are of programs that have them for other things
    for key in keys:
        known = [{pair[side].name for pair in found} for side in (0, 1)]
        left = [
            [one for one in run if one.is_result and one.name not in taken]
            for run, taken in zip((mine, theirs), known, strict=True)
        ]
        found += _pair_unique(left[0], left[1], key)
    position = {one: index for index, one in enumerate(mine)}
    return sorted(found, key=lambda pair: position[pair[0]])


def _pair_mapped(
    mine: Sequence[StoredTensor], theirs: Sequence[StoredTensor], names: Mapping[str, str]
) -> Iterator[Pair]:
    results = [{one.name: one for one in run if one.is_result} for run in (theirs, mine)]
    for both in names.items():
        for name, run, which in zip(both, results, ("first", "second"), strict=True):
            if name not in run:
                raise fail(
                    "DIFF001",
                    f"--map names a tensor that the {which} run does not have",
                    found=name,
                    expected=f"a tensor such as {', '.join(list(run)[:4])}",
                    hint=did_you_mean(name, run),
                )
        yield results[1][both[1]], results[0][both[0]]


def _pair_by_name(mine: Sequence[StoredTensor], theirs: Sequence[StoredTensor]) -> Iterator[Pair]:
    """Pair tensors by name and operand; results also by name alone."""
    by_operand = {(one.name, one.operand): one for one in theirs}
    results = {one.name: one for one in theirs if one.is_result}
    for one in mine:
        other = by_operand.get((one.name, one.operand))
        if other is None and one.is_result:
            other = results.get(one.name)
        if other is not None:
            yield one, other


def _pair_unique(
    mine: Sequence[StoredTensor],
    theirs: Sequence[StoredTensor],
    key: Callable[[StoredTensor], Hashable | None],
) -> Iterator[Pair]:
    """Pair tensors by a key that no other tensor of either run has."""
    keys = [[key(one) for one in run] for run in (mine, theirs)]
    counts = [Counter(each) for each in keys]
    others = dict(zip(keys[1], theirs, strict=True))
    for one, its_key in zip(mine, keys[0], strict=True):
        if its_key is not None and counts[0][its_key] == counts[1][its_key] == 1:
            yield one, others[its_key]


def _strip_model_name(origins: Mapping[str, str]) -> Callable[[StoredTensor], str]:
    """Return a key function: the name without changes by Glow, an exporter or a front end."""

    def name(one: StoredTensor) -> str:
        text = make_legal_name(strip_numeric_suffix(origins.get(one.name, one.name)))
        return text.removesuffix(_ONNX_OUTPUT).strip("_")

    return name


def _numbered_key(one: StoredTensor) -> Hashable | None:
    """Return number, shape and type; None without a number."""
    if one.number is None:
        return None
    values = one.load()
    return one.number, values.shape, values.array.dtype.name


def _shape_key(one: StoredTensor) -> Hashable:
    """Return the sorted shape without ones, which is the same in every layout."""
    return tuple(sorted(size for size in one.load().shape if size != 1))


def find_axis_order(mine: Shape, theirs: Shape, layout: str) -> tuple[tuple[int, ...], str] | None:
    """Return the axis order that converts one shape to the other and its layout, or None.

    Parameters
    ----------
    mine
        The wanted shape.
    theirs
        The shape to permute.
    layout
        Layout of ``theirs``; one of LAYOUTS.

    Returns
    -------
    tuple or None
        The permutation, () if a reshape suffices, and the name of the layout. None if no
        permutation fits.
    """
    if layout in _ORDERS and len(mine) == len(theirs) == 4:
        axes, name = _ORDERS[layout]
        return (axes, name) if permute_shape(theirs, axes) == mine else None
    if [n for n in mine if n != 1] == [n for n in theirs if n != 1]:
        return (), ""
    if layout == "auto" and len(mine) == len(theirs) == 4:
        for axes, name in _ORDERS.values():
            if permute_shape(theirs, axes) == mine:
                return axes, name
    return None


def permute_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return a shape with permuted axes."""
    return tuple(shape[axis] for axis in axes)


NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_FIXED = re.compile(r"-?\d+\.(\d+)")
_STREAM_DIGITS = 6
"""Significant digits of a C++ stream."""


def parse_printed_values(
    tokens: list[str], shape: Shape, dtype: np.dtype[Any] | None, place: Place
) -> KnownValues:
    """Parse the printed elements of a tensor, which may be only the first elements.

    Parameters
    ----------
    tokens
        Texts that match NUMBER.
    shape
        Shape of the tensor.
    dtype
        Element type; None if the text does not state it.
    place
        Place of the text, for messages.

    Raises
    ------
    UserError
        DUMP001 if there are more numbers than elements.
    """
    size = math.prod(shape)
    if len(tokens) > size:
        raise fail(
            "DUMP001",
            "the printed tensor has too many numbers",
            place=place,
            found=f"{len(tokens):,} numbers",
            expected=f"at most {size:,} numbers",
        )
    numbers = np.array(tokens, np.float64)
    return KnownValues(
        shape=shape,
        array=convert_to_type(numbers, dtype),
        tolerance=_tolerance(tokens, numbers),
        is_typed=dtype is not None,
    )


def convert_to_type(numbers: Float64s, dtype: np.dtype[Any] | None) -> Array:
    """Round and saturate numbers to a dtype; return them unchanged if the dtype is None."""
    if dtype is None:
        return numbers
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return numbers.astype(dtype)
    if dtype.kind == "b":
        return np.not_equal(numbers, 0)
    limits = np.iinfo(dtype)
    highest = np.nextafter(float(limits.max) + 1, 0)  # the largest that astype can take
    whole = np.clip(np.rint(np.nan_to_num(numbers)), limits.min, highest)
    elements: Array = whole.astype(dtype)
    return elements


def _tolerance(tokens: list[str], numbers: Float64s) -> Any:
    """Return half a unit of the last digit, for fixed decimals or fixed significant digits."""
    decimals = {len(match[1]) if (match := _FIXED.fullmatch(t)) else None for t in tokens[:100]}
    (fixed,) = decimals if len(decimals) == 1 else (None,)
    if fixed is not None and fixed >= 3:
        return 0.5 * 10.0**-fixed * (1 + 1e-6)
    size = np.abs(np.nan_to_num(numbers))
    exponent = np.floor(np.log10(np.maximum(size, 1e-300))) + 1 - _STREAM_DIGITS
    return 0.5 * 10.0**exponent * (1 + 1e-6)
