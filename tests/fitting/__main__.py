"""Fit hidden devices to 24 layers with 2 % noise, and print errors of all other layers."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from tests.fitting.hidden_devices import fit_hidden_device
from tests.shared_files import shared_folder

MEASURED, NOISE = 24, 0.02
NETWORKS = ("minimob", "minires", "lenet")


def main(devices: int, seed: int) -> None:
    """Fit ``devices`` hidden devices and print the errors of layers that were not measured."""
    folder = shared_folder() / "lir"
    texts = [folder / name / "i8_asym_b32" / "cpu.lir.txt" for name in NETWORKS]
    images = [nmpsim.compile(text, Path(str(text)[: -len("lir.txt")] + "npz")) for text in texts]
    programs = [parse_bundle(image.image) for image in images]
    errors = []
    for number in range(devices):
        random = np.random.default_rng([seed, number])
        found = fit_hidden_device(nmpsim.default_device(), programs, MEASURED, NOISE, random)
        errors.append(found.unseen)
        print(f"seed {seed} device {number}: {describe_errors(found.unseen)}", flush=True)
    print(f"all: {describe_errors(np.concatenate(errors))}")


def describe_errors(errors: np.ndarray) -> str:
    """Return the median and the 95th percentile of relative errors as text."""
    return f"median {np.median(errors):.2%}, 95th percentile {np.quantile(errors, 0.95):.2%}"


if __name__ == "__main__":
    arguments = [int(one) for one in sys.argv[1:]]
    main(*(arguments[:1] or [20]), *(arguments[1:2] or [secrets.randbelow(1 << 32)]))
