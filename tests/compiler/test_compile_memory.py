"""Test that compiling keeps only one copy of a network's weights in memory."""

import pickle
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
from lir_draft import Draft, int8
from traced_memory import at_most

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.diagnostics import UserError
from nmpsim.lir.printer import format_module

WIDE, LAYERS = 2048, 4
WEIGHTS = WIDE * WIDE * LAYERS
"""17 MB."""


def stack_layers(wide: int, layers: int) -> Draft:
    """Build a draft of fully connected layers, one after the other."""
    draft, kind = Draft(), int8((1, wide))
    x = draft.input(kind)
    for number in range(layers):
        y = draft.output(kind) if number == layers - 1 else draft.buffer(kind)
        weights = draft.constant(np.ones((wide, wide), np.int8), "i8", 0.001)
        bias = draft.constant(np.zeros(wide, np.int32), "i32", 0.0005)
        draft.emit("fullyconnected", y, x, weights, bias)
        x = y
    return draft


def write_network(
    folder: Path, draft: Draft, save: Callable[..., None] = np.savez
) -> tuple[Path, Path]:
    """Write a network in LIR and return the paths of its text and weights."""
    module, text, weights = draft.module(), folder / "net.lir.txt", folder / "net.npz"
    text.write_text(format_module(module), encoding="utf-8")
    save(weights, **module.constants)
    return text, weights


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_weights_of_lir_are_in_memory_once(tmp_path: Path, save: Callable[..., None]) -> None:
    nmpsim.compile(
        *write_network(tmp_path, stack_layers(8, 1)), tiling="simple"
    )  # imports, kernels
    files = write_network(tmp_path, stack_layers(WIDE, LAYERS), save)
    with at_most(1.25 * WEIGHTS):
        compiled = nmpsim.compile(*files, tiling="simple")
        nmpsim.save(compiled, tmp_path / "net.bin")
    assert (tmp_path / "net.bin").stat().st_size == compiled.file.nbytes > WEIGHTS


def test_all_forms_of_a_compiled_network_are_equal(tmp_path: Path) -> None:
    compiled = nmpsim.compile(*write_network(tmp_path, stack_layers(8, 2)))
    digest = nmpsim.save(compiled, tmp_path / "net.bin")
    assert (tmp_path / "net.bin").read_bytes() == compiled.image == bytes(compiled.bundle.file)
    assert nmpsim.load(tmp_path / "net.bin").digest == compiled.bundle.digest == digest
    assert parse_bundle(compiled.image).metadata == compiled.file.metadata
    assert pickle.loads(pickle.dumps(compiled)).image == compiled.image


def test_unloadable_bundles_are_not_written(tmp_path: Path) -> None:
    file = nmpsim.compile(*write_network(tmp_path, stack_layers(8, 2))).file
    file.check("net.bin")
    damaged = attrs.evolve(file, metadata=attrs.evolve(file.metadata, steps=()))
    with pytest.raises(UserError, match=r"the steps compute the layers \[\] instead of 0 to 1"):
        damaged.check("net.bin")
