"""Non-maximum suppression: of overlapping boxes, the one with the best score is selected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    FloatArray,
    HostTensor,
    HostValueError,
    Outputs,
)
from nmpsim.records import frozen


@frozen
class _Chosen:
    """A selected box."""

    score: float
    batch: int
    label: int
    box: int


def non_max_suppression(
    indices: HostTensor,
    numbers: HostTensor,
    boxes: HostTensor,
    scores: HostTensor,
    attributes: Attributes,
) -> Outputs:
    """Select boxes by score; discard boxes that overlap a selected box (ONNX's formula).

    Each row of Indices [M, 3] is a batch, class and box, class by class from the best score on;
    of equal scores the lower index comes first (Glow leaves that to its C++ library). The rest of
    a batch's rows repeats the worst of its boxes. NumberOfSelectedIndices holds their number
    MaxOutputBoxesPerClass times for each batch. With IsTFVersion4 there is one batch and one class:
    Boxes [B, 4], Scores [B], Indices [M].
    """
    most = int(attributes["MaxOutputBoxesPerClass"])
    corners = _corners(boxes.values, bool(attributes["CenterPointBox"]))
    corners = corners.reshape(-1, boxes.shape[-2], 4)
    table = scores.values.reshape(len(corners), -1, corners.shape[1])
    room = indices.shape[0] // len(corners)
    rows: list[tuple[int, int, int]] = []
    counts: list[int] = []
    for batch in range(len(corners)):
        chosen = [
            _Chosen(float(table[batch, label, box]), batch, label, box)
            for label in range(table.shape[1])
            for box in _select_boxes(corners[batch], table[batch, label], attributes, most)
        ]
        if len(chosen) > room:
            raise HostValueError(
                f"nonmaxsuppression: {len(chosen)} boxes are selected, but Indices has {room} rows"
            )
        start = _Chosen(float(table[batch, 0, 0]), batch, 0, 0)
        worst = _worst(chosen, start)
        filled = chosen + [worst] * (room - len(chosen))
        rows += [(c.batch, c.label, c.box) for c in filled]
        counts += [len(chosen)] * most
    table_of_rows = np.array(rows, np.int64).reshape(-1, 3)
    if attributes["IsTFVersion4"]:
        table_of_rows = table_of_rows[:, 2]
    return {0: table_of_rows, 1: np.array(counts)}


def _worst(chosen: Sequence[_Chosen], start: _Chosen) -> _Chosen:
    """Return the box that fills unused rows: of each class's last box, the first of least score.

    It begins as box 0 of class 0.
    """
    worst = start
    for place, box in enumerate(chosen):
        is_last = place + 1 == len(chosen) or chosen[place + 1].label != box.label
        if is_last and box.score < worst.score:
            worst = box
    return worst


def _corners(boxes: FloatArray, are_centers: bool) -> FloatArray:
    """Return ``[low, low, high, high]`` of boxes given as two corners, or as center and size."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if are_centers:
        half = second / boxes.dtype.type(2)
        first, second = first - half, first + half
        return np.concatenate([first, second], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _select_boxes(
    corners: FloatArray, scores: FloatArray, attributes: Attributes, most: int
) -> Iterator[int]:
    """Yield boxes of one class, best score first, without those that overlap a better one."""
    kept: list[int] = []
    candidates = np.flatnonzero(scores > scores.dtype.type(attributes["ScoreThreshold"]))
    for box in candidates[np.argsort(-scores[candidates], kind="stable")].tolist():
        if len(kept) == most:
            return
        if not _overlaps(corners[kept], corners[box], attributes["IouThreshold"]).any():
            kept.append(box)
            yield box


def _overlaps(kept: FloatArray, box: FloatArray, threshold: float) -> AnyArray:
    """Return which boxes exceed a threshold of intersection over union with ``box``."""
    sides = np.minimum(kept[:, 2:], box[2:]) - np.maximum(kept[:, :2], box[:2])
    both = np.maximum(sides, 0).prod(axis=1)
    areas = (kept[:, 2:] - kept[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    overlap: AnyArray = (both != 0) & (both > both.dtype.type(threshold) * (areas - both))
    return overlap
