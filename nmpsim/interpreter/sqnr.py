"""Signal-to-quantization-noise ratio: how large errors are relative to the right values."""

from __future__ import annotations

import math

import numpy as np

from nmpsim.arrays import Array


def compute_sqnr_db(reference: Array, error: Array) -> float:
    """Compute the SQNR ``10 log10(sum(reference**2) / sum(error**2))`` in dB."""
    return convert_to_decibels(compute_energy(reference), compute_energy(error))


def compute_energy(values: Array) -> float:
    """Compute the sum of squares of an array, in float64."""
    return float(np.square(values, dtype=np.float64).sum())


def convert_to_decibels(signal: float, noise: float) -> float:
    """Return the ratio of two energies in dB: inf if the noise is 0, -inf if the signal is 0."""
    if noise == 0:
        return math.inf
    ratio = signal / noise
    return 10 * math.log10(ratio) if ratio else -math.inf
