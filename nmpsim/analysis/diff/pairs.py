"""Which tensors of two runs are the same: by name, by what a map says, or for want of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from nmpsim.analysis.diff.tensors import Tensor
from nmpsim.diagnostics import fail
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix

LAYOUTS = ("auto", "same", "nchw", "nhwc")
"""What the first run's tensors of four dimensions are, where the second's are the other."""
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_ORDERS = {"nchw": (_TO_NHWC, "NCHW"), "nhwc": (_TO_NCHW, "NHWC")}
_ONNX_OUTPUT = "_output_0"
"""What PyTorch's exporter appends to an operation's name for its result."""
Pair = tuple[Tensor, Tensor]
"""A tensor of the second run, and the first run's."""


def pair(
    mine: Sequence[Tensor],
    theirs: Sequence[Tensor],
    names: Mapping[str, str],
    origins: Mapping[str, str],
) -> list[Pair]:
    """Tensors that both runs have, in the order of ``mine``.

    Where both have operands, by name and operand. Results that are left: by the operation that they
    come from, or by their name as Glow would write it; by number, shape and type; and, of runs with
    other names, by the shape if each has one such result left. Nothing that has two candidates is
    matched.

    Raises DIFF001 for names that no result has.
    """
    found = [*_mapped(mine, theirs, names)]
    mapped = [{id(each[side]) for each in found} for side in (0, 1)]
    found += _by_name(
        [one for one in mine if id(one) not in mapped[0]],
        [one for one in theirs if id(one) not in mapped[1]],
    )
    keys = [_model_name(origins), _numbered_form]
    if any(one.number is None for run in (mine, theirs) for one in run):
        keys.append(_form)  # two runs with numbers are of programs that have them for other things
    for key in keys:
        known = [{each[side].name for each in found} for side in (0, 1)]
        left = [
            [one for one in run if one.is_result and one.name not in taken]
            for run, taken in zip((mine, theirs), known, strict=True)
        ]
        found += _only_ones(left[0], left[1], key)
    place = {id(one): index for index, one in enumerate(mine)}
    return sorted(found, key=lambda each: place[id(each[0])])


def _mapped(
    mine: Sequence[Tensor], theirs: Sequence[Tensor], names: Mapping[str, str]
) -> Iterator[Pair]:
    results = [{one.name: one for one in run if one.is_result} for run in (theirs, mine)]
    for both in names.items():
        for name, run, which in zip(both, results, ("first", "second"), strict=True):
            if name not in run:
                message = f"--map names {name}, which the {which} run does not have"
                raise fail("DIFF001", message, expected=", ".join(list(run)[:4]))
        yield results[1][both[1]], results[0][both[0]]


def _by_name(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> Iterator[Pair]:
    """By name and operand; a result also where operands are called by other names."""
    by_operand = {(one.name, one.operand): one for one in theirs}
    results = {one.name: one for one in theirs if one.is_result}
    for one in mine:
        other = by_operand.get((one.name, one.operand))
        if other is None and one.is_result:
            other = results.get(one.name)
        if other is not None:
            yield one, other


def _only_ones(
    mine: Sequence[Tensor], theirs: Sequence[Tensor], key: Callable[[Tensor], Hashable | None]
) -> Iterator[Pair]:
    """Pairs of one key, which nothing else has in either run."""
    keys = [[key(one) for one in run] for run in (mine, theirs)]
    counts = [Counter(each) for each in keys]
    others = dict(zip(keys[1], theirs, strict=True))
    for one, its_key in zip(mine, keys[0], strict=True):
        if its_key is not None and counts[0][its_key] == counts[1][its_key] == 1:
            yield one, others[its_key]


def _model_name(origins: Mapping[str, str]) -> Callable[[Tensor], str]:
    """A name without what Glow, an exporter or a front end made of it."""

    def name(one: Tensor) -> str:
        text = make_legal_name(strip_numeric_suffix(origins.get(one.name, one.name)))
        return text.removesuffix(_ONNX_OUTPUT).strip("_")

    return name


def _numbered_form(one: Tensor) -> Hashable | None:
    """Number, shape and type; None without a number."""
    if one.number is None:
        return None
    values = one.load()
    return one.number, values.shape, values.array.dtype.name


def _form(one: Tensor) -> Hashable:
    """The shape, whatever the layout."""
    return tuple(sorted(size for size in one.load().shape if size != 1))


def order_of(
    mine: tuple[int, ...], theirs: tuple[int, ...], layout: str
) -> tuple[tuple[int, ...], str] | None:
    """How to turn the axes of theirs into those of mine, () for not at all, and their layout."""
    if layout in _ORDERS and len(mine) == len(theirs) == 4:
        axes, name = _ORDERS[layout]
        return (axes, name) if permuted(theirs, axes) == mine else None
    if [n for n in mine if n != 1] == [n for n in theirs if n != 1]:
        return (), ""
    if layout == "auto" and len(mine) == len(theirs) == 4:
        for axes, name in _ORDERS.values():
            if permuted(theirs, axes) == mine:
                return axes, name
    return None


def permuted(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its axes in another order."""
    return tuple(shape[axis] for axis in axes)
