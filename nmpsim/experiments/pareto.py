"""Pareto fronts: points that no other point equals or improves in every measure."""

from __future__ import annotations

from collections.abc import Sequence


def find_pareto_front(points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the Pareto front of points with minimal coordinates, in ascending order."""
    front: list[tuple[float, ...]] = []
    for point in sorted(points):
        if not any(all(a <= b for a, b in zip(one, point, strict=True)) for one in front):
            front.append(point)
    return front
