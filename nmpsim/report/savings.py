"""Savings: the cycles that a run would save if a resource were free, and their description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from nmpsim.records import frozen
from nmpsim.report.fields import Whole


@frozen
class Limiter:
    """Limiter of a run: a resource with its name in text and its causes on the critical path."""

    name: str
    free: str
    """The free resource in a sentence, such as ``free DRAM``."""
    path_causes: tuple[str, ...] = ()
    """Causes on the critical path that the resource explains."""


LIMITERS: Mapping[str, Limiter] = {
    "dram": Limiter("DRAM", "free DRAM", ("dram_service", "row_miss")),
    "row_misses": Limiter("row misses", "free row misses"),
    "channels": Limiter("uneven use of DRAM channels", "even use of the DRAM channels"),
    "latency": Limiter("latency", "transfers without latency", ("latency", "dma_start")),
    "mac": Limiter("MAC arrays", "free MAC arrays", ("mac",)),
    "vector": Limiter("vector units", "free vector units", ("vector",)),
    "control": Limiter("control code", "free control code", ("control",)),
    "synchronization": Limiter("synchronization", "free synchronization", ("barrier", "semaphore")),
    "imbalance": Limiter("imbalance", "evenly divided work"),
    "host": Limiter("the host", "a free host"),
}
"""Key of a resource in JSON -> the resource."""
INCLUDED = {"row_misses": "dram", "channels": "dram"}
"""Resource that is part of another one -> the other one."""
MIN_CHANNEL_SHARE = 0.05
"""Share of the cycles that an even use of all channels must save to be mentioned."""


@frozen
class Savings:
    """Cycles that a run and each of its layers would save if one resource were free."""

    run: Annotated[
        Mapping[str, Whole],
        "cycles that the run would save if a resource were free ([resources](timing.md"
        "#what-limits-a-run)); negative if it would take longer",
    ]
    layers: Annotated[
        tuple[Mapping[str, Whole], ...],
        "list: the same for each of `layers`, in the same order",
    ]


def rank_limiters(saved: Mapping[str, int]) -> list[str]:
    """Rank the resources that save cycles if free; return their keys, largest savings first.

    Resources that are part of another one are omitted.
    """
    keys = [key for key in saved if key not in INCLUDED and saved[key] > 0]
    return sorted(keys, key=lambda key: -saved[key])


def sum_path_by_limiter(path: Mapping[str, int]) -> dict[str, int]:
    """Sum the cycles of a critical path by resource; each sum bounds the savings of a resource."""
    sums = {
        key: sum(path.get(cause, 0) for cause in limiter.path_causes)
        for key, limiter in LIMITERS.items()
    }
    return {key: cycles for key, cycles in sums.items() if cycles}


def describe_limiter(saved: Mapping[str, int], cycles: int) -> str:
    """Describe the resource with the largest savings, as ``DRAM 40%``; "" without savings."""
    ranked = rank_limiters(saved)
    if not ranked or not cycles:
        return ""
    return f"{LIMITERS[ranked[0]].name} {saved[ranked[0]] / cycles:.0%}"


def describe_savings(saved: Mapping[str, int], cycles: int, *, is_bound: bool = False) -> str:
    """Describe the two largest savings as shares of ``cycles``; return "" without savings.

    Parameters
    ----------
    saved
        Cycles saved by each resource if it were free.
    cycles
        Cycles of the run or the layer.
    is_bound
        Whether ``saved`` has upper bounds from the critical path, not measured cycles.
    """
    ranked = rank_limiters(saved)[:2]
    if not ranked or not cycles:
        return ""
    limit = "at most " if is_bound else ""
    first, *others = (
        f"{LIMITERS[key].free} would save {limit}{100 * saved[key] / cycles:.0f} %"
        for key in ranked
    )
    text = ", ".join([first, *(other.replace(" would save", "") for other in others)])
    if is_bound:
        return f"{text} (upper bounds from the critical path)"
    return f"limited by {LIMITERS[ranked[0]].name}: {text}"


def describe_channels(saved: Mapping[str, int], cycles: int, channels: int) -> str:
    """Describe what an even use of the DRAM channels would save; return "" if it is little."""
    share = saved.get("channels", 0) / cycles if cycles else 0
    if share < MIN_CHANNEL_SHARE:
        return ""
    text = f"not all {channels} DRAM channels are busy at once"
    return f"{text}: even use would save {100 * share:.0f} %"


def describe_cores_with_work(layers: Any, saved: Mapping[str, int], cores: int) -> str:
    """Describe how many cores have work if unused cores limit a run; return "" otherwise.

    Unused cores limit a run if imbalance is one of its two largest savings, and most of it comes
    from cores without work in a layer (:class:`~nmpsim.report.data.LayerReport`).
    """
    unused, uneven = (
        sum(layer.core_cycles.get(cause, 0) for layer in layers)
        for cause in ("unused", "imbalance")
    )
    cycles = sum(layer.device_cycles for layer in layers)
    if "imbalance" not in rank_limiters(saved)[:2] or unused <= uneven or not cycles:
        return ""
    mean = sum(layer.cores * layer.device_cycles for layer in layers) / cycles
    return f"{mean:.1f} of {cores} cores have work on average"
