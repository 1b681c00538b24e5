"""Images a second of `nmpsim.evaluate` in one process, and what each takes.

    python benchmarks/evaluate.py [--images N] [--rounds N]

The digits are those of `programs/`, ResNet-8 is among the files of `speed.py`. An evaluation begins
with an empty device: it loads the program, records it and proves which layers are whole. Prints a
Markdown table. Seconds are the processor's, on one thread, and the least of some rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from resnet50_programs import resnet50_folder

import nmpsim

Samples = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Images, and their labels."""


def digits() -> tuple[nmpsim.Bundle, Samples]:
    """Return the program of this repository, and its data set."""
    folder = Path(__file__).parents[1] / "programs/digits"
    program = nmpsim.compile(folder / "digits.lir.txt", weights=folder / "digits.npz")
    with np.load(folder / "testset.npz") as data:
        return program.bundle, (data["x"], data["labels"])


def resnet8() -> tuple[nmpsim.Bundle, Samples]:
    """Return a recorded network; its images have no labels, so that they have any."""
    folder = resnet50_folder().parents[1] / "models/resnet8_int8"
    images = np.load(folder / "inputs.npy")
    return nmpsim.compile(folder / "model.tflite").bundle, (images, np.arange(len(images)) % 10)


def seconds(bundle: nmpsim.Bundle, samples: Samples, count: int) -> float:
    """Of the processor, for this many images."""
    images, labels = (np.resize(one, (count, *one.shape[1:])) for one in samples)
    begin = time.process_time()
    nmpsim.evaluate(bundle, {bundle.metadata.inputs[0].name: images}, labels, jobs=1)
    return time.process_time() - begin


def rows(count: int, rounds: int) -> Iterator[str]:
    """Yield the lines of the table."""
    for name, (bundle, samples) in (("digits", digits()), ("ResNet-8 (Int8)", resnet8())):
        seconds(bundle, samples, 1)  # kernels are compiled, or read
        each = [
            (seconds(bundle, samples, 1), seconds(bundle, samples, count)) for _ in range(rounds)
        ]
        first, all_of_them = (min(column) for column in zip(*each, strict=True))
        more, rate = (all_of_them - first) / (count - 1), count / all_of_them
        yield f"| {name} | {first * 1e3:.0f} ms | {more * 1e3:.2f} ms | {rate:,.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"| network | one image | each more | images a second, of {given.images:,} |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    for row in rows(given.images, given.rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
