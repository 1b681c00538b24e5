"""Test which loads move ahead of a barrier, and where they and the waits for them stand."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from nmpsim.bundle.layout import RW_BASE
from nmpsim.compiler.tiling.compiled.items import WAIT
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.grid import TileGrid
from nmpsim.compiler.tiling.load_ahead import load_ahead
from nmpsim.compiler.tiling.plan import (
    LOAD,
    STORE,
    InstructionSequence,
    PlanBuilder,
    get_word_offsets,
    make_box_words,
)
from nmpsim.compiler.tiling.simulate import order_instructions
from nmpsim.config import default_device
from nmpsim.isa.table import DRAM_BASE, SCRATCHPAD_BASE, Unit
from nmpsim.timing import get_costs

CONFIG = attrs.evolve(default_device(), cores_count=3)
MODEL = DramModel(get_costs(CONFIG))
NBYTES = 2048
WORDS = get_word_offsets(LOAD)
IN, OUT, VECTOR = int(Unit.LOAD), int(Unit.STORE), int(Unit.VECTOR)


def make_layer(
    *tiles: int, constants: int = 0, columns: int = 1, nbytes: int = NBYTES
) -> InstructionSequence:
    """Return a layer with buffers for constants, input and result, in this order or reversed.

    ``constants`` is the position of the buffer for constants, 0 or 2.
    """
    builder = PlanBuilder(TileGrid.from_counts(tiles), Unit.VECTOR, CONFIG)
    buffers = [builder.allocate_buffer(nbytes) for _ in range(3)]
    table, source, result = buffers if constants == 0 else buffers[::-1]
    run = nbytes // columns
    stride = {"dram_stride_x": run, "spm_stride_x": run}
    builder.add_instructions(LOAD, make_box_words(DRAM_BASE, table, run, columns, **stride))
    builder.add_instructions(LOAD, make_box_words(RW_BASE, source, nbytes))
    builder.add_instructions("nmp.fill", {"count": nbytes, "output": result})
    builder.add_instructions(STORE, make_box_words(RW_BASE, result, nbytes))
    return order_instructions(builder.build(), 7)


def list_items(sequence: InstructionSequence) -> list[list[tuple[int, int]]]:
    parts = np.split(sequence.items, sequence.begins[1:-1])
    return [list(map(tuple, part.tolist())) for part in parts]


def test_loads_stand_after_those_of_the_layer_before_and_the_core_waits_for_them() -> None:
    before, after = make_layer(1), make_layer(1, 1, 1)
    ahead, rest = load_ahead([before, after], [4, 7], MODEL, CONFIG.scratchpad_bytes)
    wait_in, wait_out = (WAIT + IN, 0), (WAIT + OUT, 0)
    done = [(WAIT + VECTOR, 0), (OUT, 0), wait_out]
    assert list_items(ahead) == [
        [(IN, 0), (IN, 1), wait_in, (IN, 2), wait_out, (VECTOR, 0), *done, wait_in],
        [(IN, 3), wait_in],
        [(IN, 4), wait_in],
    ]
    assert [[kind for kind, _ in part] for part in list_items(rest)] == [
        [kind for kind, _ in list_items(before)[0][1:]]
    ] * 3
    loads = ahead.units[Unit.LOAD].words
    end = SCRATCHPAD_BASE + CONFIG.scratchpad_bytes
    assert loads[:, WORDS["layer"]].tolist() == [7, 7, 4, 4, 4]
    assert loads[2:, WORDS["spm"]].tolist() == [end - 3 * NBYTES] * 3
    assert rest.scratchpad == (end - 3 * NBYTES, end)


@pytest.mark.parametrize(
    ("first", "capacity", "moved"),
    [
        (NBYTES, 6 * NBYTES, [1, 1]),
        (NBYTES, 6 * NBYTES - 64, [0, 1]),
        (NBYTES // 2, 6 * NBYTES - 64, [1, 0]),
    ],
)
def test_loads_move_only_to_buffers_beside_those_of_the_layer_before(
    first: int, capacity: int, moved: list[int]
) -> None:
    """The constants of the second layer are its first buffer, those of the third its last."""
    layers = [make_layer(1, nbytes=first), make_layer(1), make_layer(1, constants=2)]
    found = load_ahead(layers, [0, 1, 2], MODEL, capacity)
    counts = [one.units[Unit.LOAD].which.size for one in found]
    assert counts == [2 + moved[0], 2 - moved[0] + moved[1], 2 - moved[1]]


def test_loads_of_several_runs_do_not_move() -> None:
    layers = [make_layer(1), make_layer(1, columns=2)]
    assert load_ahead(layers, [0, 1], MODEL, CONFIG.scratchpad_bytes) == layers
