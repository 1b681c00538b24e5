"""What the account of saturation costs in the compiled engine.

Two processes run the same programs by turns: one as it is, one whose kernels cut values and do no
more: they neither look whether anything is cut nor keep an account of it (``clamp_elements`` and
``record`` replaced, compiled into a cache of their own). A round takes the fastest of a few runs of
each, by turns, and gives one ratio; what is printed is the median of the ratios and the middle half
of them. A third process, as it is, shows how far apart two equal ones are: what is smaller than
that is noise.

The programs are the same network with output ranges in which nothing, a little or most saturates.

    python benchmarks/saturation.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

RUNS = 5
"""Runs of each process in a round."""
SIZE, CHANNELS, CLASSES = 48, 64, 100
CONVOLUTION = (
    "Kernels: [3, 3], Strides: [1, 1], Pads: [1, 1, 1, 1], Group: 1, Dilation: [1, 1],"
    " Layout: NHWC, FusedActivation: NONE, FusedActivationArgs: []"
)
IMAGE = f"1 x {SIZE} x {SIZE} x {CHANNELS}"
HALF = f"1 x {SIZE // 2} x {SIZE // 2} x {CHANNELS}"
FLAT = SIZE * SIZE // 4 * CHANNELS
SCALES = {"nothing saturates": 8.0, "a little saturates": 0.5, "most saturates": 0.0625}
"""Program -> scale of its activations; sums have a standard deviation of about 32."""


def network(scale: float) -> str:
    """Two convolutions, one with ReLU, an addition, a pool and a fully connected layer."""
    act = f"i8[S:{scale:.9f} O:0][0.000,0.000]"
    filter_ = f"i8[S:0.007812500 O:0][-1.000,0.992]<{CHANNELS} x 3 x 3 x {CHANNELS}>"
    return f"""function saturation
declare {{
  %filter1 = WeightVar {filter_} const
  %filter2 = WeightVar {filter_} const
  %bias = WeightVar i32[S:0.000244141 O:0][0.000,0.000]<{CHANNELS}> const
  %weights = WeightVar i8[S:0.000030518 O:0][0.000,0.000]<{FLAT} x {CLASSES}> const
  %bias_fc = WeightVar i32[S:0.000030518 O:0][0.000,0.000]<{CLASSES}> const
  %x = WeightVar i8[S:0.031250000 O:0][-4.000,3.969]<{IMAGE}> mutable
  %y = WeightVar {act}<1 x {CLASSES}> mutable
}}

code {{
  0 %a = allocactivation  {{ Ty: {act}<{IMAGE}>}}
  1 %conv1 = convolution @out %a, @in %x, @in %filter1, @in %bias {{ {CONVOLUTION}}}
  2 %relu = relu @out %a, @in %a
  3 %b = allocactivation  {{ Ty: {act}<{IMAGE}>}}
  4 %conv2 = convolution @out %b, @in %x, @in %filter2, @in %bias {{ {CONVOLUTION}}}
  5 %add = elementadd @out %b, @in %a, @in %b
  6 %c = allocactivation  {{ Ty: {act}<{HALF}>}}
  7 %pool = maxpool @out %c, @in %b {{ Kernels: [2, 2], Strides: [2, 2], Pads: [0, 0, 0, 0]}}
  8 %flat = tensorview @in %c {{ Ty: {act}<1 x {FLAT}>, Offsets: [0, 0, 0, 0]}}
  9 %fc = fullyconnected @out %y, @in %flat, @in %weights, @in %bias_fc
  10 %free_a = deallocactivation @out %a
  11 %free_b = deallocactivation @out %b
  12 %free_c = deallocactivation @out %c
}}
"""


def constants() -> dict[str, np.ndarray[Any, Any]]:
    """Weights all over their range."""
    rng = np.random.default_rng(0)
    shape = (CHANNELS, 3, 3, CHANNELS)
    return {
        "filter1": rng.integers(-128, 128, shape).astype(np.int8),
        "filter2": rng.integers(-128, 128, shape).astype(np.int8),
        "bias": rng.integers(-5000, 5000, CHANNELS).astype(np.int32),
        "weights": rng.integers(-128, 128, (FLAT, CLASSES)).astype(np.int8),
        "bias_fc": np.zeros(CLASSES, np.int32),
    }


def image() -> np.ndarray[Any, Any]:
    """Return the network's input."""
    shape = (1, SIZE, SIZE, CHANNELS)
    return np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)


def compile_all(folder: Path) -> dict[str, Path]:
    """Every program as a bundle."""
    import nmpsim

    np.savez(folder / "weights.npz", **constants())
    bundles = {}
    for number, (name, scale) in enumerate(SCALES.items()):
        text = folder / f"{number}.lir.txt"
        text.write_text(network(scale), encoding="utf-8")
        bundles[name] = folder / f"{number}.bin"
        nmpsim.save(nmpsim.compile(text, folder / "weights.npz"), bundles[name])
    return bundles


def work(without_account: bool, bundles: list[str]) -> None:
    """Run as a worker: for each number on stdin, run that bundle and print its seconds.

    Seconds of the processor, as others may be at work on the machine.
    """
    if without_account:
        _drop_account()
    import nmpsim

    x = image()
    device = nmpsim.Device()
    loaded = [nmpsim.load(path) for path in bundles]
    for line in sys.stdin:
        begin = time.thread_time()
        report = device.run(loaded[int(line)], {"x": x})
        seconds = time.thread_time() - begin
        cut = sum(layer.saturated for layer in report.layers)
        elements = sum(layer.elements for layer in report.layers)
        print(seconds, cut / elements, flush=True)


def _drop_account() -> None:
    """Replace what keeps the account, before anything that calls it is compiled."""
    from nmpsim.kernels import saturate
    from nmpsim.kernels.jit import jit

    plain: Any = saturate
    plain.limit_run, plain.record_limited = jit(_limit_run), jit(_record)


def _limit_run(
    values: Any,
    count: Any,
    low: Any,
    high: Any,
    low_stage: Any,
    high_stage: Any,
    index: Any,
    counters: Any,
) -> None:
    for i in range(count):
        values[i] = min(max(values[i], low), high)


def _record(counters: Any, stage: Any, side: Any, index: Any, overshoot: Any, times: Any) -> None:
    pass


class Worker:
    """A process that runs bundles when told."""

    def __init__(self, folder: Path, bundles: dict[str, Path], *, account: bool) -> None:
        words = [sys.executable, __file__, "--worker", *map(str, bundles.values())]
        environment = dict(os.environ)
        if not account:
            words.append("--without-account")
            environment["NUMBA_CACHE_DIR"] = str(folder / "cache")
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, number: int) -> tuple[float, float]:
        """Seconds, and the share of results that saturated."""
        print(number, file=_open(self._process.stdin), flush=True)
        seconds, share = _open(self._process.stdout).readline().split()
        return float(seconds), float(share)

    def close(self) -> None:
        """End the process."""
        _open(self._process.stdin).close()
        self._process.wait()


def _open(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("the worker has no pipe")
    return stream


def paired(one: Worker, other: Worker, number: int, rounds: int) -> Iterator[float]:
    """Ratios of the fastest of a few runs by turns; who is first changes."""
    for turn in range(rounds):
        pair = (one, other) if turn % 2 == 0 else (other, one)
        fastest = dict.fromkeys(pair, math.inf)
        for worker in pair * RUNS:
            fastest[worker] = min(fastest[worker], worker.run(number)[0])
        yield fastest[one] / fastest[other]


def spread(ratios: Iterator[float]) -> str:
    """Median and middle half."""
    low, median, high = np.percentile(list(ratios), [25, 50, 75])
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


def measure(rounds: int) -> None:
    """Print the ratios of all programs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundles = compile_all(folder)
        kept = Worker(folder, bundles, account=True)
        same = Worker(folder, bundles, account=True)
        dropped = Worker(folder, bundles, account=False)
        workers = (kept, same, dropped)
        warm = [[worker.run(number) for worker in workers] for number in range(len(bundles))]
        print(f"median and middle half of {rounds} ratios of run times, 1 means as fast\n")
        for number, program in enumerate(bundles):
            share = warm[number][0][1]
            best = min(kept.run(number)[0] for _ in range(RUNS))
            print(f"{program} ({100 * share:.1f}% of all results), {1e3 * best:.1f} ms a run")
            print("  with account / without   ", spread(paired(kept, dropped, number, rounds)))
            print("  two equal ones           ", spread(paired(kept, same, number, rounds)))
        print()
        for worker in workers:
            worker.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="ratios a program")
    parser.add_argument("--worker", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--without-account", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments.without_account, arguments.worker)
    else:
        measure(arguments.rounds)


if __name__ == "__main__":
    main()
