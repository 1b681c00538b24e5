"""Run the fuzz targets on all saved inputs, including all that once failed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from .target import CORPUS, list_corpus, list_formats, load_target
from .targets.whole import compare

FILES = [(name, path) for name in list_formats() for path in list_corpus(name)]
MAX_BYTES = 64 << 10
"""Size limit of a corpus file, which keeps clones small and the suite fast."""


@pytest.mark.parametrize(("name", "path"), FILES, ids=[f"{n}/{p.name}" for n, p in FILES])
def test_a_saved_input_is_no_defect(name: str, path: Path) -> None:
    load_target(name).run(path.read_bytes())


def test_every_format_has_inputs() -> None:
    assert {name for name, _ in FILES} == set(list_formats())
    assert {folder.name for folder in CORPUS.iterdir()} == set(list_formats())


def test_inputs_are_small() -> None:
    for _, path in FILES:
        assert path.stat().st_size <= MAX_BYTES, path


@pytest.mark.parametrize("name", list_formats())
def test_a_mutator_changes_its_input(name: str) -> None:
    judge = load_target(name)
    seed = list_corpus(name)[0].read_bytes()
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
