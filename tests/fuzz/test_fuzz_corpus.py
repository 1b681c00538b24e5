"""Every input that is kept, among them each that once broke something, breaks nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from .target import CORPUS, corpus, names, target
from .targets.whole import compare

FILES = [(name, path) for name in names() for path in corpus(name)]
MAX_BYTES = 64 << 10
"""Of a file: larger ones would make a clone large, and the suite slow."""


@pytest.mark.parametrize(("name", "path"), FILES, ids=[f"{n}/{p.name}" for n, p in FILES])
def test_a_saved_input_is_no_defect(name: str, path: Path) -> None:
    target(name).run(path.read_bytes())


def test_every_format_has_inputs() -> None:
    assert {name for name, _ in FILES} == set(names())
    assert {folder.name for folder in CORPUS.iterdir()} == set(names())


def test_inputs_are_small() -> None:
    for _, path in FILES:
        assert path.stat().st_size <= MAX_BYTES, path


@pytest.mark.parametrize("name", names())
def test_a_mutator_changes_its_input(name: str) -> None:
    judge = target(name)
    seed = corpus(name)[0].read_bytes()
    if judge.mutate is not None:
        made = set()
        for number in range(40):
            try:
                made.add(judge.mutate(seed, Random(number)))
            except ValueError:
                continue
        assert len(made) > 10


def test_layer_kernels_are_compared() -> None:
    assert compare((CORPUS / "whole" / "tiled-convolution.bin").read_bytes())
