"""The handwritten digits and their one fixed split into training and test images.

Only this module needs scikit-learn, and only when :func:`load_split` is called.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPLIT_SEED = 2023
TEST_IMAGES_PER_DIGIT = 45


@dataclass(frozen=True)
class Images:
    """Grey values 0..16 as float32 (N, 1, 8, 8), and the digit of each as int64 (N,)."""

    x: NDArray[np.float32]
    labels: NDArray[np.int64]


def load_split() -> tuple[Images, Images]:
    """Return (training, test): 1347 and 450 images, the test images 45 of each digit."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = digits.images.astype(np.float32)[:, np.newaxis]
    labels = digits.target.astype(np.int64)
    is_test = choose_test_images(labels)
    return Images(x[~is_test], labels[~is_test]), Images(x[is_test], labels[is_test])


def choose_test_images(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the same number of images of each digit, drawn with a fixed seed."""
    rng = np.random.default_rng(SPLIT_SEED)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        candidates = np.flatnonzero(labels == digit)
        is_test[rng.permutation(candidates)[:TEST_IMAGES_PER_DIGIT]] = True
    return is_test
