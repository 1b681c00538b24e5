"""What the critical path costs: ResNet-50 with it and without, in pairs.

    python benchmarks/path_overhead.py [--pairs N]

Runs alternate, and so does which of a pair comes first. *First* is the first run of a device, which
records the program; *warm* a later one. Both read the report's layers. Times are the processor's,
on one thread, so other work on the computer matters little. Needs the files of `speed.py`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import resnet50_programs

import nmpsim
from nmpsim.bundle import read_bundle
from nmpsim.core.critical_path import CriticalPath, PathSection, join_paths
from nmpsim.core.state import PathCause


class NoPath:
    """A recorder that records nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def add(self, *_: Any) -> None:
        """Nothing."""

    def finish(self, *_: Any) -> CriticalPath:
        """Nothing."""
        return join_paths([])


def without(do: Callable[[], Any]) -> None:
    """Do something without the critical path."""
    nothing = [0] * len(PathCause)
    with (
        patch("nmpsim.core.compiled.recording.PathRecorder", NoPath),
        patch.object(PathSection, "cycles", lambda _: nothing),
    ):
        do()


def seconds(do: Callable[[], Any]) -> float:
    """Of the processor."""
    begin = time.process_time()
    do()
    return time.process_time() - begin


def row(name: str, run: Callable[[], Any], pairs: int) -> str:
    """Return a line of the table."""
    ways = [run, lambda: without(run)]
    taken: list[list[float]] = [[], []]
    for number in range(pairs):
        for way in (0, 1) if number % 2 else (1, 0):
            taken[way].append(seconds(ways[way]))
    more = statistics.median(a - b for a, b in zip(*taken, strict=True))
    on, off = (statistics.median(one) for one in taken)
    return f"| {name} | {on * 1e3:.1f} ms | {off * 1e3:.1f} ms | {more * 1e3:.1f} ms |"


def main() -> None:
    """Print a Markdown table; differences are medians over the pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, _ = resnet50_programs.compile_program(resnet50_programs.PROGRAMS[0], Path(folder))
        bundle = read_bundle(path)
    image, device = resnet50_programs.image(), nmpsim.Device(threads=1)
    list(device.run(bundle, image).layers)
    print("| run | with | without | difference |\n| --- | ---: | ---: | ---: |", flush=True)
    print(row("warm", lambda: list(device.run(bundle, image).layers), given.pairs), flush=True)
    first = row(
        "first", lambda: list(nmpsim.Device(threads=1).run(bundle, image).layers), given.pairs
    )
    print(first)


if __name__ == "__main__":
    main()
