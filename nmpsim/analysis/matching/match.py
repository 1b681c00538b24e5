"""Matching of the tensors of a run or a program with the tensors of a reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice, pairwise, product, takewhile

import attrs
import numpy as np

from nmpsim.analysis.matching.alignment import (
    MAX_CELLS,
    Scores,
    find_ascending_indices,
    find_certain_pairs,
)
from nmpsim.analysis.matching.chains import ChainLink, find_chain_links, sort_functions
from nmpsim.analysis.matching.layout import SAME, find_axis_order, infer_layout
from nmpsim.analysis.matching.names import (
    MAX_SHARED,
    NameKeys,
    find_operation_kind,
    list_all_names,
    list_endings,
    list_own_names,
    list_spellings,
    pair_unique_names,
)
from nmpsim.analysis.matching.result import TensorMatching, TensorPair
from nmpsim.analysis.matching.similarity import (
    MAX_CUBES,
    MAX_DIFFERENT,
    MIN_SIMILAR,
    find_similar_layout,
    find_similar_pairs,
    find_swapped_pairs,
    is_closer,
    is_cube,
    is_similar,
    measure_similarity,
)
from nmpsim.analysis.matching.tensors import (
    KnownValues,
    StoredTensor,
    list_layer_tensors,
)
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Metadata
from nmpsim.diagnostics import did_you_mean, fail
from nmpsim.lir.layers import find_layer

BY_MAP, BY_NAME, BY_SPELLING, BY_ENDING, BY_NUMBER, BY_ORDER, BY_VALUES = (
    "map", "name", "spelling", "ending", "number", "order", "values",
)  # fmt: skip
"""Evidence for a pair, strongest first."""
_TIERS: tuple[tuple[str, NameKeys], ...] = (
    (BY_NAME, list_own_names),
    (BY_NAME, list_all_names),
    (BY_SPELLING, list_spellings),
    (BY_ENDING, list_endings),
)
_MIN_IN_ORDER = 0.8
"""Smallest share of pairs by name in one order for which the order of a file is trusted."""
MIN_INNER_ERROR, MIN_INNER_RATIO = 0.01, 16
"""Smallest error (1 minus similarity) of a pair by order or values that contradicts a right pair.

It exceeds that of a result that depends on it by at least the ratio. No ratio separates all pairs:
in random networks, some tensors before a batch norm differ as little as right pairs do.
"""
MAX_GRAPH = 2000
"""Largest number of results whose dependences are examined."""
_CONVERSIONS = frozenset({"quantize", "dequantize", "rescalequantized", "transpose", "copy"})
"""Opcodes of layers that a reference often lacks."""


def match_tensors(
    tensors: Sequence[StoredTensor],
    references: Sequence[StoredTensor],
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
) -> TensorMatching:
    """Match the tensors of a run or program with the tensors of a reference.

    Operands of instructions match by name and operand. Results match by name, if no other tensor
    with a fitting shape and type has the name; then by their order between these pairs, if every
    best alignment of the two sequences contains the pair; then by values. A quantized layer matches
    the end of the chain of float tensors that was folded into it. Ambiguous results stay unmatched.

    Parameters
    ----------
    tensors
        Tensors of a run, or outputs of layers from
        :func:`~nmpsim.analysis.matching.list_layer_tensors`, in the order of execution.
    references
        Tensors of the reference in the order of its file.
    names
        Name in the reference -> name in the run; other names are not used for these tensors.
    layout
        Layout of the reference's 4-D tensors; ``auto`` infers one layout for all of them.

    Raises
    ------
    UserError
        DIFF001 for names that no result has.
    """
    matcher = _Matcher(tensors, references)
    matcher.add(BY_MAP, _find_mapped(tensors, references, names or {}))
    matcher.add(BY_NAME, _pair_operands(tensors, references))
    matcher.infer_layout(layout)
    for how, list_keys in _TIERS:
        matcher.pair_names(how, list_keys)
    matcher.remove_contradictions()
    if matcher.has_numbers:
        matcher.pair_numbers()
    else:
        matcher.align()
        matcher.pair_values()
        matcher.align()  # fewer results are exchangeable
    matcher.follow_chains()
    matcher.remove_inner()
    matcher.remove_dissimilar()
    return matcher.finish()


def match_layers(
    metadata: Metadata,
    references: Sequence[StoredTensor],
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
    outputs: Mapping[str, Array] | None = None,
) -> TensorMatching:
    """Match the outputs of a program's layers with the tensors of a reference.

    Parameters
    ----------
    metadata
        Metadata of the program.
    references, layout
        As for :func:`match_tensors`.
    names
        Name in the reference -> name or index of a layer.
    outputs
        Outputs of layers by name, if the program has run.

    Raises
    ------
    UserError
        DIFF001 for a name that is not in the reference, LAYER001 for an unknown layer.
    """
    layers, known = metadata.layers, outputs or {}
    mapped = {key: find_layer(layers, name).name for key, name in (names or {}).items()}
    tensors = [
        attrs.evolve(one, load=partial(KnownValues.from_array, known[one.name]))
        if one.name in known
        else one
        for one in list_layer_tensors(metadata)
    ]
    return match_tensors(tensors, references, mapped, layout)


def suggest_mapping(tensors: Sequence[StoredTensor], references: Sequence[StoredTensor]) -> str:
    """Return a hint that suggests ``--map``, or one input if the reference has several."""
    single = {tuple(sorted(one.shape[1:])) for one in tensors if one.shape[:1] == (1,)}
    for one in references:
        if one.shape[:1] > (1,) and tuple(sorted(one.shape[1:])) in single:
            return (
                f"Pass the results of one input: the arrays of the reference have {one.shape[0]}."
            )
    return "Map the names of the reference with --map."


class _Matcher:
    """Tensors of a run and a reference, and the pairs found so far."""

    def __init__(self, tensors: Sequence[StoredTensor], references: Sequence[StoredTensor]) -> None:
        self._all = tensors
        self._results = _sort_by_number(tensors)
        self._references = _sort_by_number(references)
        if not self.has_numbers:  # a model's runtime knows no parts of a concatenation
            self._results = [one for one in self._results if not one.is_partial]
        self._rows = {one: index for index, one in enumerate(self._results)}
        self._columns = {one: index for index, one in enumerate(self._references)}
        self._pairs: dict[StoredTensor, TensorPair] = {}
        self._used: set[StoredTensor] = set()
        self._links: Sequence[ChainLink] | None = None
        self._functions: dict[StoredTensor, list[StoredTensor]] = {}
        self._is_ordered = True
        self.layout = SAME
        self._is_layout_known = True

    @property
    def has_numbers(self) -> bool:
        """Whether all results of both have the numbers of instructions of two programs."""
        runs = (self._results, self._references)
        return all(one.number is not None for run in runs for one in run)

    def add(self, how: str, pairs: Iterator[tuple[StoredTensor, StoredTensor]]) -> None:
        """Add pairs of tensors that are not matched yet."""
        for one, other in pairs:
            if one not in self._pairs and other not in self._used:
                self._pairs[one] = TensorPair(one, other, how)
                self._used.add(other)

    def infer_layout(self, layout: str) -> None:
        """Infer the layout from the names that match, from all shapes, or from values.

        Two recorded runs of programs have the same layout if their shapes fit several layouts.
        """
        if layout != "auto":
            self.layout = layout
            return
        pairs = [(one.tensor, one.reference) for one in self._pairs.values()]
        pairs += pair_unique_names(*self._left(), list_spellings, lambda one, other: True)
        # Conversions of inputs and outputs may have the layout of the model's file.
        named = [pair for pair in pairs if pair[0].opcode not in _CONVERSIONS]
        left = [one for one in self._left()[0] if one.opcode not in _CONVERSIONS]
        runs = left, self._left()[1]
        mine, theirs = (dict.fromkeys(one.shape for one in run) for run in runs)
        cubes = product(filter(is_cube, left), filter(is_cube, self._left()[1]))
        found: str | None = (
            infer_layout((one.shape, other.shape) for one, other in named)
            or infer_layout(islice(product(mine, theirs), MAX_CELLS))
            or (SAME if self.has_numbers else None)
            or find_similar_layout(named or list(islice(cubes, MAX_CUBES)))
        )
        self.layout, self._is_layout_known = found or SAME, found is not None

    def pair_names(self, how: str, list_keys: NameKeys) -> None:
        """Match tensors by unique keys; equal own names match even if shape or type do not fit."""
        if list_keys is list_own_names:
            self.add(how, pair_unique_names(*self._left(), list_keys, lambda one, other: True))
            return
        found = pair_unique_names(*self._left(), list_keys, self._fits)
        if how == BY_ENDING:
            matched: dict[str, list[StoredTensor]] = defaultdict(list)
            for one in self._pairs:
                for key in set(list_keys(one)):
                    matched[key].append(one)
            found = (pair for pair in found if not self._has_other_name(*pair, matched))
        self.add(how, found)

    def _has_other_name(
        self,
        one: StoredTensor,
        other: StoredTensor,
        matched: Mapping[str, Sequence[StoredTensor]],
    ) -> bool:
        """Return whether the common ending is that of a matched result, or only an operation."""
        common = max(set(list_endings(one)) & set(list_endings(other)), key=len)
        is_prefixed = all(common not in list_spellings(each) for each in (one, other))
        return (is_prefixed and common.isalpha()) or any(
            self._fits(each, other) for each in matched.get(common, ())[:MAX_SHARED]
        )

    def remove_contradictions(self) -> None:
        """Decide whether the file's order is meaningful; remove weak pairs that contradict it."""
        pairs = [one for one in self._pairs.values() if one.tensor in self._rows]
        pairs = [one for one in pairs if one.reference in self._columns and one.how != BY_MAP]
        pairs.sort(key=lambda pair: self._rows[pair.tensor])
        columns = [self._columns[pair.reference] for pair in pairs]
        in_order = {pairs[index].tensor for index in find_ascending_indices(columns)}
        self._is_ordered = len(in_order) >= _MIN_IN_ORDER * len(pairs)
        if not self._is_ordered:
            return
        for pair in pairs:
            if pair.tensor in in_order:
                continue
            if pair.how != BY_ENDING:
                # Branches and outputs may be in another order.
                known = pair.reference.shape, pair.reference.dtype
                is_unique = sum((one.shape, one.dtype) == known for one in self._references) == 1
                near = is_unique or is_similar(pair.tensor, pair.reference, self.layout)
                self._pairs[pair.tensor] = attrs.evolve(pair, is_out_of_order=not near)
            else:
                del self._pairs[pair.tensor]
                self._used.remove(pair.reference)

    def pair_numbers(self) -> None:
        """Match renamed results of two programs by number, shape and type."""
        mine, theirs = self._left()
        by_number = {one.number: one for one in theirs}
        found = ((one, by_number.get(one.number)) for one in mine)
        self.add(
            BY_NUMBER,
            (
                (one, other)
                for one, other in found
                if other is not None and (one.shape, one.dtype) == (other.shape, other.dtype)
            ),
        )

    def align(self) -> None:
        """Match results by their order between pairs that are in order."""
        if not self._is_ordered:
            return
        exchangeable = self._find_exchangeable()
        named = sum(pair.how == BY_NAME for pair in self._pairs.values())
        for mine, theirs in list(self._segments()):
            if len(mine) * len(theirs) > MAX_CELLS:
                continue
            found = {
                mine[row]: theirs[column]
                for row, column in find_certain_pairs(self._score_all(mine, theirs))
            }
            is_complete = all(one in found or one.opcode in _CONVERSIONS for one in mine)
            # If the names of the reference are known, it has other names for other tensors.
            is_complete = is_complete and len(found) > named // 2
            swapped = find_swapped_pairs(list(found.items()), self.layout)
            self.add(
                BY_ORDER,
                (
                    (one, other)
                    for one, other in found.items()
                    if is_similar(one, other, self.layout)
                    or not (
                        (one, other) in swapped
                        or one in exchangeable
                        or not is_complete
                        or self._is_inside(one, other, found)
                    )
                ),
            )

    def _is_inside(
        self, one: StoredTensor, other: StoredTensor, found: Mapping[StoredTensor, StoredTensor]
    ) -> bool:
        """Return whether a tensor is inside a chain whose end is not the next result."""
        if self._is_end(other):
            return False
        following = self._results[self._rows[one] + 1 :][:1]
        pairs = {**found, **{pair.tensor: pair.reference for pair in self._pairs.values()}}
        ends = self._list_chain(other)
        return not any(pairs.get(after) in ends for after in following)

    def _find_exchangeable(self) -> set[StoredTensor]:
        """Return the results that may be computed before or after another one that fits alike."""
        if len(self._results) > MAX_GRAPH:
            return set(self._results)
        alike: dict[object, list[StoredTensor]] = defaultdict(list)
        found: set[StoredTensor] = set()
        for row, ancestors in enumerate(self._ancestors):
            one = self._results[row]
            if one in self._pairs:
                continue
            for other in alike[one.shape, one.dtype]:
                if not ancestors >> self._rows[other] & 1:
                    found |= {one, other}
            alike[one.shape, one.dtype].append(one)
        return found

    @cached_property
    def _ancestors(self) -> list[int]:
        """Ancestors of each result as a bit mask of rows with its own row; [] if unknown."""
        if len(self._results) > MAX_GRAPH:
            return []
        ancestors: dict[str, int] = {}
        for row, one in enumerate(self._results):
            if one.inputs is None:
                return []
            ancestors[one.name] = 1 << row
            for name in one.inputs:
                ancestors[one.name] |= ancestors.get(name, 0)
        return [ancestors[one.name] for one in self._results]

    def pair_values(self) -> None:
        """Match results that are similar to one result of the reference and to no other."""
        segments = self._segments() if self._is_ordered else [self._left()]
        ends = {one for one in self._references if self._is_end(one)}
        for mine, theirs in segments:
            if all(one.dtype is not None and one.dtype.kind != "f" for one in mine):
                theirs = [one for one in theirs if one in ends]
            self.add(BY_VALUES, find_similar_pairs(mine, theirs, self._is_possible, self.layout))

    def follow_chains(self) -> None:
        """Match quantized layers with the end of the float tensors that were folded into them."""
        rows = sorted(self._rows[one] for one in self._pairs if one in self._rows)
        following = dict(pairwise(rows))
        for row in rows:
            pair = self._pairs[self._results[row]]
            tensor, dtype = pair.tensor, pair.reference.dtype
            if pair.how in (BY_MAP, BY_VALUES) or pair.reference not in self._columns:
                continue
            if (
                dtype is None
                or dtype.kind != "f"
                or tensor.dtype is None
                or tensor.dtype.kind == "f"
            ):
                continue
            end = self._find_chain_end(pair.reference)
            shared = self._find_chain_end(pair.reference, can_share=True)
            if shared is not end and (
                tensor.begins_at_zero or is_closer(tensor, shared, pair.reference, self.layout)
            ):
                end = shared  # the result is clipped as the layer after it would clip it
            between = self._results[row + 1 : following.get(row, len(self._results))]
            if end is pair.reference or any(self._fits(one, end) for one in between):
                continue
            if is_closer(tensor, pair.reference, end, self.layout):
                continue
            self._used.discard(pair.reference)
            self._used.add(end)
            self._pairs[tensor] = attrs.evolve(pair, reference=end)

    def remove_dissimilar(self) -> None:
        """Remove pairs by order with other values if the reference lacks results of the run.

        The order of a partial file is no evidence: the tensor may belong to another layer.
        """
        if all(one.opcode in _CONVERSIONS for one in self._left()[0]):
            return
        for pair in list(self._pairs.values()):
            one, other = pair.tensor, pair.reference
            if (
                pair.how in (BY_ENDING, BY_ORDER)
                and one.load().is_complete
                and not is_similar(one, other, self.layout)
                and sum(self._fits(one, each) for each in self._references) > 1
            ):
                del self._pairs[one]
                self._used.discard(other)

    def remove_inner(self) -> None:
        """Remove pairs of different float tensors on whose results a similar result depends.

        The reference's tensor is then one before a batch norm or an activation of the layer. A pair
        by order or values is removed, too, if a result that depends on it is much more similar.
        """
        if not self._ancestors:
            return
        errors = {
            self._rows[one]: 1 - similarity
            for one, pair in self._pairs.items()
            if one in self._rows and pair.how != BY_MAP and _is_quantized_float(pair)
            if (similarity := measure_similarity(one, pair.reference, self.layout))
        }
        for row, error in errors.items():
            pair = self._pairs[self._results[row]]
            limit = 1 - MIN_SIMILAR if error >= 1 - MAX_DIFFERENT else 0.0
            if pair.how in (BY_ORDER, BY_VALUES) and error >= MIN_INNER_ERROR:
                limit = max(limit, error / MIN_INNER_RATIO)
            readers = (one for one in errors if one != row and self._ancestors[one] >> row & 1)
            if any(errors[one] <= limit for one in readers):
                del self._pairs[pair.tensor]
                self._used.discard(pair.reference)

    def finish(self) -> TensorMatching:
        """Return the pairs in the order of the run, and the unmatched results."""
        return TensorMatching(
            tuple(self._pairs[one] for one in self._all if one in self._pairs),
            self.layout,
            tuple(one for one in self._all if one.is_result and one not in self._pairs),
            tuple(one for one in self._references if one not in self._used),
            is_layout_known=self._is_layout_known,
        )

    def _left(self) -> tuple[list[StoredTensor], list[StoredTensor]]:
        """Return the results of run and reference that are not matched."""
        names = {one.name for one in self._pairs}
        used = {one.name for one in self._used}
        return (
            [one for one in self._results if one.name not in names],
            [one for one in self._references if one.name not in used],
        )

    def _segments(self) -> Iterator[tuple[list[StoredTensor], list[StoredTensor]]]:
        """Yield the unmatched results of both between two pairs that are in order."""
        mine, theirs = (set(run) for run in self._left())
        anchors = sorted(
            (self._rows[pair.tensor], self._columns[pair.reference])
            for pair in self._pairs.values()
            if pair.tensor in self._rows and pair.reference in self._columns
        )
        kept = find_ascending_indices([column for _, column in anchors])
        ends = [(-1, -1), *(anchors[index] for index in kept)]
        ends.append((len(self._results), len(self._references)))
        for (row, column), (next_row, next_column) in pairwise(ends):
            segment = (
                [one for one in self._results[row + 1 : next_row] if one in mine],
                [one for one in self._references[column + 1 : next_column] if one in theirs],
            )
            if all(segment):
                yield segment

    def _is_possible(self, one: StoredTensor, other: StoredTensor) -> bool:
        """Return whether shape, type and range of a result fit a result of the reference.

        Real numbers below zero do not fit a range that begins at zero: an activation follows.
        """
        return self._fits(one, other) and not (one.begins_at_zero and other.has_negatives)

    def _fits(self, one: StoredTensor, other: StoredTensor) -> bool:
        """Return whether shape and type of a result fit a result of the reference."""
        if one.dtype is not None and other.dtype is not None and one.dtype != other.dtype:
            kinds = {one.dtype.kind, other.dtype.kind}
            if kinds != {"i", "u"} and "f" not in kinds:
                return False
            if "f" not in kinds and one.dtype.itemsize != other.dtype.itemsize:
                return False
        return find_axis_order(one.shape, other.shape, self.layout) is not None

    def _score_all(self, mine: Sequence[StoredTensor], theirs: Sequence[StoredTensor]) -> Scores:
        """Return the scores of all pairs as a matrix; equal tensors have equal scores."""
        keys = [
            (one.shape, one.dtype, one.opcode or find_operation_kind(one), one.begins_at_zero)
            for one in mine
        ]
        links = self._find_links()
        others = [
            (
                one.shape,
                one.dtype,
                find_operation_kind(one),
                self._is_end(one),
                one.has_negatives,
                links[self._columns[one]],
            )
            for one in theirs
        ]
        known = {
            (key, other_key): self._score(one, other)
            for key, one in dict(zip(keys, mine, strict=True)).items()
            for other_key, other in dict(zip(others, theirs, strict=True)).items()
        }
        return np.array([[known[key, other] for other in others] for key in keys], np.int64)

    def _score(self, one: StoredTensor, other: StoredTensor) -> int:
        """Return the score of a pair in an alignment, or 0 if the pair does not fit."""
        kinds = find_operation_kind(one), find_operation_kind(other)
        if not self._is_possible(one, other) or (all(kinds) and kinds[0] != kinds[1]):
            return 0
        link = self._find_links()[self._columns[other]]
        score = 64 + 4 * self._is_end(other) + 2 * link.is_function - 2 * link.is_copy
        is_integer = one.dtype is not None and one.dtype.kind != "f"
        # Of a result and its dequantized copy, the result matches.
        return score + 8 * is_integer * (one.dtype == other.dtype) + all(kinds) + is_integer

    def _is_end(self, one: StoredTensor) -> bool:
        """Return whether the next tensor of the reference is not a function of a tensor."""
        following, links = self._columns[one] + 1, self._find_links()
        return following == len(links) or not links[following].is_function

    def _find_links(self) -> Sequence[ChainLink]:
        if self._links is None:
            self._links = list(find_chain_links(self._references))
        return self._links

    def _list_chain(self, start: StoredTensor) -> list[StoredTensor]:
        """Return the tensors after ``start`` that are functions of it, in order."""
        if not self._is_ordered:
            if start not in self._functions:
                self._functions[start] = sort_functions(start, self._references)
            return self._functions[start]
        first = self._columns[start] + 1
        links = takewhile(lambda link: link.is_function, self._find_links()[first:])
        return self._references[first : first + sum(1 for _ in links)]

    def _find_chain_end(self, start: StoredTensor, can_share: bool = False) -> StoredTensor:
        """Return the last tensor of a chain that is not matched, or ``start``.

        With ``can_share``, the next tensor may be matched with another result too.
        """
        chain = self._list_chain(start)
        free = takewhile(lambda one: can_share or one not in self._used, chain)
        return [start, *free][-1]


def _is_quantized_float(pair: TensorPair) -> bool:
    """Return whether a reference tensor is float, but the run's tensor is not."""
    dtypes = pair.tensor.dtype, pair.reference.dtype
    kinds = ["" if one is None else one.kind for one in dtypes]
    return kinds[1] == "f" and kinds[0] in ("i", "u")


def _sort_by_number(tensors: Sequence[StoredTensor]) -> list[StoredTensor]:
    results = [one for one in tensors if one.is_result]
    if any(one.number is None for one in results):
        return results
    return sorted(results, key=lambda one: one.number or 0)


def _find_mapped(
    mine: Sequence[StoredTensor], theirs: Sequence[StoredTensor], names: Mapping[str, str]
) -> Iterator[tuple[StoredTensor, StoredTensor]]:
    results = [{one.name: one for one in run if one.is_result} for run in (theirs, mine)]
    for both in names.items():
        for name, run, which in zip(both, results, ("reference", "run"), strict=True):
            if name not in run:
                raise fail(
                    "DIFF001",
                    f"--map names a tensor that the {which} does not have",
                    found=name,
                    expected=f"a tensor such as {', '.join(list(run)[:4])}",
                    hint=did_you_mean(name, run),
                )
        yield results[1][both[1]], results[0][both[0]]


def _pair_operands(
    mine: Sequence[StoredTensor], theirs: Sequence[StoredTensor]
) -> Iterator[tuple[StoredTensor, StoredTensor]]:
    """Pair tensors by instruction and operand."""
    by_operand = {(one.name, one.operand): one for one in theirs if one.operand is not None}
    for one in mine:
        other = by_operand.get((one.name, one.operand)) if one.operand is not None else None
        if other is not None:
            yield one, other
