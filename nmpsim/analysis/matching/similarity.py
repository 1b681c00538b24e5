"""Similarity of the values of tensors that fit otherwise, from sampled elements.

The similarity is the correlation. That of quantized values and real numbers also counts a different
scale or offset, by which a result differs from the tensor before a batch norm or an activation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.matching.layout import AXIS_ORDERS, SAME, find_axis_order
from nmpsim.analysis.matching.tensors import StoredTensor
from nmpsim.arrays import Array, Shape
from nmpsim.lir.nodes import Quantization

MIN_SIMILAR = 0.97
"""Smallest correlation of similar tensors; 12 dB is the error of a poorly quantized layer."""
MAX_DIFFERENT = 0.9
"""Largest correlation of different tensors; that of a tensor and its ReLU is 0.86 on average."""
MIN_RATIO = 4
"""Smallest ratio of the errors (1 minus correlation) of another tensor and of the closest one."""
_MIN_EXAMINED = 0.8
"""Smallest correlation of quantized values and real numbers whose differences are examined."""
_MIN_ERROR = 1e-6
"""Error below which tensors count as equal."""
_MIN_ELEMENTS = 32
MAX_CUBES = 400
"""Largest number of pairs of tensors whose values decide the layout."""
_SAMPLES = 2048
_MAX_TENSORS = 1000
_Pair = tuple[StoredTensor, StoredTensor]
_Reals = npt.NDArray[np.float64]


def find_similar_pairs(
    tensors: Sequence[StoredTensor],
    references: Sequence[StoredTensor],
    fits: Callable[[StoredTensor, StoredTensor], bool],
    layout: str,
) -> Iterator[_Pair]:
    """Yield pairs of tensors whose values correlate strongly, and much less with any third tensor.

    Tensors without complete values and tensors with few elements are not compared.
    """
    if max(len(tensors), len(references)) > _MAX_TENSORS:
        return
    correlations = np.zeros((len(tensors), len(references)))
    for mine in _group_by_shape(tensors).values():
        for theirs in _group_by_shape(references).values():
            if fits(tensors[mine[0]], references[theirs[0]]):
                shape = tensors[mine[0]].shape
                correlations[np.ix_(mine, theirs)] = _compare(
                    [tensors[index] for index in mine],
                    [references[index] for index in theirs],
                    shape,
                    layout,
                )
    errors = np.maximum(1 - correlations, _MIN_ERROR)
    for row, column in np.argwhere(correlations >= MIN_SIMILAR):
        error = errors[row, column]
        others = np.delete(errors[row], column), np.delete(errors[:, column], row)
        if all(MIN_RATIO * error < other.min(initial=np.inf) for other in others):
            yield tensors[row], references[column]


def find_swapped_pairs(pairs: Sequence[_Pair], layout: str) -> set[_Pair]:
    """Return dissimilar pairs whose tensors are similar to a tensor of a different such pair."""
    groups: dict[tuple[Shape, Shape], list[_Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair[0].shape, pair[1].shape].append(pair)
    swapped: set[_Pair] = set()
    for (shape, _), group in groups.items():
        if 2 <= len(group) <= _MAX_TENSORS:
            mine, theirs = zip(*group, strict=True)
            correlations = _compare(mine, theirs, shape, layout)
            wrong = np.diagonal(correlations) <= MAX_DIFFERENT
            for row, column in np.argwhere(correlations >= MIN_SIMILAR):
                if row != column and wrong[row] and wrong[column]:
                    swapped |= {group[row], group[column]}
    return swapped


def find_similar_layout(pairs: Sequence[_Pair]) -> str | None:
    """Return the layout in which most tensors of ambiguous shape are similar, or None if unknown.

    The layout is unknown if two layouts fit equally, or if only one tensor decides, because the
    run may have transposed that tensor by mistake. Without such tensors, the layout is ``same``.
    """
    cubes = [pair for pair in pairs if is_cube(pair[0]) and pair[0].shape == pair[1].shape]
    if not cubes:
        return SAME
    votes = Counter(
        layout
        for layout in AXIS_ORDERS
        for one, other in cubes[:MAX_CUBES]
        if is_similar(one, other, layout)
    )
    first, second = (*votes.most_common(2), ("", 0), ("", 0))[:2]
    return first[0] if first[1] > max(second[1], 1) else None


def is_cube(tensor: StoredTensor) -> bool:
    """Return whether a 4-D tensor has equal height, width and channels, so that layouts fit it."""
    return len(tensor.shape) == 4 and len(set(tensor.shape[1:])) == 1 < tensor.shape[-1]


def is_similar(tensor: StoredTensor, reference: StoredTensor, layout: str) -> bool:
    """Return whether a tensor is similar to a reference tensor; False if values are unknown."""
    return measure_similarity(tensor, reference, layout) >= MIN_SIMILAR


def is_closer(
    tensor: StoredTensor, reference: StoredTensor, other: StoredTensor, layout: str
) -> bool:
    """Return whether a tensor is similar to ``reference`` and much less similar to ``other``."""
    error, other_error = (1 - measure_similarity(tensor, one, layout) for one in (reference, other))
    return 1 - error >= MIN_SIMILAR and MIN_RATIO * error < other_error


def measure_similarity(tensor: StoredTensor, reference: StoredTensor, layout: str) -> float:
    """Return the similarity of a tensor and a reference tensor; 0 if values are unknown."""
    return float(_compare([tensor], [reference], tensor.shape, layout)[0, 0])


def _group_by_shape(tensors: Sequence[StoredTensor]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, one in enumerate(tensors):
        groups[one.shape, one.dtype, one.begins_at_zero, one.has_negatives].append(index)
    return groups


def _compare(
    tensors: Sequence[StoredTensor], references: Sequence[StoredTensor], shape: Shape, layout: str
) -> _Reals:
    """Return the similarity of each tensor (row) and reference tensor (column) of one shape."""
    rows, columns = _sample(tensors, shape, SAME), _sample(references, shape, layout)
    found = _standardize(rows) @ _standardize(columns).T
    for row, one in enumerate(tensors):
        if one.quantization is None or one.dtype is None or one.dtype.kind == "f":
            continue
        for column in map(int, np.flatnonzero(found[row] >= _MIN_EXAMINED)):
            if (dtype := references[column].dtype) is not None and dtype.kind == "f":
                found[row, column] = _measure_agreement(
                    rows[row], columns[column], one.quantization
                )
    return found


def _measure_agreement(stored: _Reals, expected: _Reals, quantization: Quantization) -> float:
    """Return the similarity of quantized values and real numbers, which is at most 1.

    It is the correlation if mean and variance are equal, and smaller if they differ.
    """
    values = quantization.scale * (stored - quantization.offset)
    if values.min() == 0 and expected.min() < -quantization.scale:
        return MAX_DIFFERENT  # the result is clipped at zero, the reference is not
    expected = np.clip(expected, quantization.low, quantization.high)
    power = float(expected @ expected)
    expected = expected * max(float(values @ expected), 0) / power if power else expected
    error = float(np.square(values - expected).sum())
    scale = 2 * float(np.linalg.norm(values - values.mean()) * expected.std() * expected.size**0.5)
    return max(1 - error / scale, _MIN_ERROR) if scale else _MIN_ERROR


def _sample(tensors: Sequence[StoredTensor], shape: Shape, layout: str) -> _Reals:
    """Return samples of tensors of one shape as rows in the order of ``shape``; 0 if unknown."""
    size = int(np.prod(shape))
    positions = np.arange(size)
    if size > _SAMPLES:
        positions = np.random.default_rng(0).choice(size, _SAMPLES, replace=False)
    samples = np.zeros((len(tensors), positions.size))
    for row, one in enumerate(tensors):
        values = one.load()
        axes = find_axis_order(shape, values.shape, layout)
        if values.is_complete and size >= _MIN_ELEMENTS and axes is not None:
            array: Array = values.array.reshape(values.shape)
            samples[row] = (array.transpose(axes) if axes else array).reshape(-1)[positions]
    return samples


def _standardize(rows: _Reals) -> _Reals:
    """Return rows with mean 0 and norm 1, or zeros where they are constant or not finite."""
    with np.errstate(all="ignore"):
        centred = rows - rows.mean(axis=1, keepdims=True)
        found = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0)
