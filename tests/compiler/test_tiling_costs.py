"""Test that the device takes the cycles that the tiling search estimates."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from compiled_runs import compile_program
from hypothesis import given
from hypothesis import strategies as st
from program_writer import Program, Size, sizes
from random_arithmetic import convolution as random_convolution
from random_programs import chains, single_operations
from tiers import examples
from tiling_runs import FEW, compile_with_tiling, digits

from nmpsim.compiler.tiling.compiled import entries
from nmpsim.compiler.tiling.compiled.events import simulate_plan
from nmpsim.compiler.tiling.compiled.items import NEVER
from nmpsim.compiler.tiling.compiled.state import make_initial_state
from nmpsim.compiler.tiling.cost_model import DramModel, estimate_box_cycles
from nmpsim.compiler.tiling.grid import TileGrid
from nmpsim.compiler.tiling.plan import LOAD, STORE, PlanBuilder, make_box_words
from nmpsim.compiler.tiling.simulate import LayerCostEstimate, make_simulation_input, simulate
from nmpsim.config import DeviceConfig, default_device, load_device
from nmpsim.core.device import Device
from nmpsim.isa.table import DRAM_BASE, SCRATCHPAD_BASE, Unit
from nmpsim.memory.dram import CURSOR_WORDS, advance_past_grant, get_next_address, start_transfer
from nmpsim.timing import get_costs

COSTS = get_costs(default_device())
ONE = attrs.evolve(default_device(), cores_count=1)
ENTRY_CYCLES = 24
"""At most, of the jump to a core's code; beside it only an open row is not in a plan."""


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, Any]:
    run = draw(st.integers(1, 3000))
    count_x, count_y = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    stride_x = draw(st.one_of(st.just(run), st.integers(0, 5000)))
    stride_y = draw(st.one_of(st.just(stride_x * count_x), st.integers(0, 9000)))
    start = DRAM_BASE + draw(st.integers(0, 10_000))
    strides = {"dram_stride_x": stride_x, "dram_stride_y": stride_y}
    return make_box_words(start, SCRATCHPAD_BASE, run, count_x, count_y, **strides)


def estimate_load(box: dict[str, Any], memory: DramModel) -> LayerCostEstimate:
    """Estimate the cost of one core that loads a box."""
    builder = PlanBuilder(TileGrid.from_counts([1]), Unit.MAC, ONE)
    builder.add_instructions(LOAD, box)
    found = simulate(builder.build(), memory)
    assert found is not None
    return found


@examples(300)
@given(boxes(), st.sampled_from([16, 64]), st.sampled_from([256, 2048]))
def test_grants_equal_a_count_one_by_one(box: dict[str, Any], burst: int, row: int) -> None:
    costs = COSTS._replace(dram_burst_bytes=burst, dram_row_bytes=row)
    cursor = np.zeros(CURSOR_WORDS, np.int64)
    names = ("dram", "run_bytes", "count_x", "count_y", "dram_stride_x", "dram_stride_y")
    start_transfer(cursor, *(box[name] for name in names))
    runs = box["count_x"] * box["count_y"]
    expected = []
    while cursor[6] < cursor[2] * cursor[3]:
        at = get_next_address(cursor) // row
        expected.append((at, advance_past_grant(cursor, costs)[0]))
    rows, bursts = zip(*expected, strict=True)
    found = estimate_load(box, DramModel(costs))
    assert (found.grants, found.bursts) == (len(expected), sum(bursts))
    assert found.row_misses == 1 + sum(a != b for a, b in pairwise(rows))
    blind = estimate_load(box, DramModel(costs, blind=True))
    assert blind.memory >= runs * box["run_bytes"] // costs.dram_bytes_per_cycle


def test_the_mode_bytes_ignores_bursts() -> None:
    """Sixteen runs of 16 bytes, each in a burst of its own."""
    box = make_box_words(DRAM_BASE, SCRATCHPAD_BASE, 16, 16, dram_stride_x=64)
    found = estimate_load(box, DramModel(COSTS))
    assert (found.grants, found.bursts, found.memory) == (1, 16, 16 * 4 + 20)
    assert estimate_load(box, DramModel(COSTS, blind=True)).memory == 16


def test_a_slow_simulation_ends_early() -> None:
    """Half of what a plan takes is too little, one cycle less is, and all of it is not."""
    builder = PlanBuilder(TileGrid.from_counts([1] * 3), Unit.MAC, default_device())
    builder.add_instructions(LOAD, make_box_words(DRAM_BASE, SCRATCHPAD_BASE, 4096))
    plan = builder.build()
    found = simulate(plan, DramModel(COSTS))
    assert found is not None
    assert simulate(plan, DramModel(COSTS), found.cycles) == found
    assert simulate(plan, DramModel(COSTS), found.cycles - 1) is None
    assert simulate(plan, DramModel(COSTS), found.cycles // 2) is None


def test_the_simulation_is_the_same_without_compiler() -> None:
    """Tiles of three cores that are loaded, filled and stored."""
    grid = TileGrid.from_counts([5, 4, 3])
    builder = PlanBuilder(grid, Unit.VECTOR, default_device())
    source = DRAM_BASE + 9000 * grid.core + 40 * grid.number
    builder.add_instructions(LOAD, make_box_words(source, SCRATCHPAD_BASE, 48, 9, 3))
    builder.add_instructions("nmp.fill", {"count": 700, "output": SCRATCHPAD_BASE})
    builder.add_instructions(
        STORE, make_box_words(DRAM_BASE + 700 * grid.number, SCRATCHPAD_BASE, 700)
    )
    plan = builder.build()
    work, costs = make_simulation_input(plan), DramModel(COSTS).costs
    plain, compiled = make_initial_state(work), make_initial_state(work)
    cycles = simulate_plan(work, plain, costs, False, NEVER)
    assert entries.simulate_plan(work, compiled, costs, False, NEVER) == cycles
    for one, other in zip(plain, compiled, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_worked_example_is_right() -> None:
    """One core loads 4096 bytes: docs/timing.md has the same, from issue to data, as 340 cycles."""
    box = make_box_words(DRAM_BASE, SCRATCHPAD_BASE, 4096)
    found = estimate_load(box, DramModel(COSTS))
    address, descriptor, waits, barrier = 2, 8, 4, 4 + 16
    assert found.cycles == address + descriptor + 340 + waits + barrier
    assert (found.bursts, found.row_misses, found.memory) == (64, 2, 2 * 148)
    assert (found.nbytes, found.cores, found.compute) == (4096, 1, 0)


@examples(30)
@given(st.one_of(chains(), single_operations((random_convolution,))), sizes())
def test_every_layer_takes_its_estimate(program: Program, size: Size) -> None:
    if compile_program(program, size.config, True) is None:
        return
    check(program, size.config)


@pytest.mark.parametrize("tiling", ["layer", "bytes", "simple"])
@pytest.mark.parametrize("changes", FEW, ids=str)
def test_estimates_hold_on_other_devices(tiling: str, changes: dict[str, int]) -> None:
    check(digits(), attrs.evolve(default_device(), **changes), tiling)


@pytest.mark.parametrize("preset", ["lpddr4-3200", "lpddr5-6400", "ddr4-3200"])
def test_estimates_hold_on_a_dram_with_banks(preset: str, tmp_path: Path) -> None:
    """Which rows are open when a layer begins, and when a refresh comes, is not in a plan."""
    path = tmp_path / "device.toml"
    path.write_text(f'[dram]\npreset = "{preset}"\n', encoding="utf-8")
    config = load_device(path)
    bundle, layers = compile_with_tiling(digits(), config, "layer")
    report = Device(config).run(bundle, digits().inputs)
    taken = [report.layers[layer.layer.index] for layer in layers]
    expected = [layer.chosen.estimate for layer in layers]
    cycles = sum(layer.cycles for layer in taken)
    assert abs(sum(one.cycles for one in expected) / cycles - 1) < 0.03
    assert [layer.bursts for layer in taken] == [one.bursts for one in expected]


def check(program: Program, config: DeviceConfig, tiling: str = "layer") -> None:
    bundle, layers = compile_with_tiling(program, config, tiling)
    report = Device(config).run(bundle, program.inputs)
    for layer in layers:
        taken = report.layers[layer.layer.index]
        expected = layer.chosen.estimate
        unknown = ENTRY_CYCLES + config.dram_row_miss_cycles
        assert abs(taken.cycles - expected.cycles) <= unknown, taken.name
        assert taken.bursts == expected.bursts
        assert taken.bytes_read + taken.bytes_written == expected.nbytes
        assert abs(taken.row_misses - expected.row_misses) <= 1


@pytest.mark.parametrize(
    ("box", "bursts", "rows"),
    [
        # A run of 5376 bytes, 84 bursts of 64, touches (5376 - 1) / 2048 + 1 rows of 2048.
        ((5376, 1, 0, 1, 0), 84, 5375 / 2048 + 1),
        # Four of them, 14 rows from one to the next: what lies between them is not opened.
        ((256, 21, 256, 4, 28_672), 336, 4 * (5375 / 2048 + 1)),
        # Sixteen runs of 64 bytes in 15 * 128 + 64 = 1984, and two such pieces far away.
        ((64, 16, 128, 1, 0), 16, 1983 / 2048 + 1),
        ((64, 16, 128, 2, 100_000), 32, 2 * (1983 / 2048 + 1)),
        # Rows of a tile that are near each other share those of the DRAM: 3 * 300 + 64 = 964 bytes.
        ((64, 1, 0, 4, 300), 4 * (1 + 63 / 64), 963 / 2048 + 1),
    ],
)
def test_the_cost_model_counts_the_rows_that_a_box_touches(
    box: tuple[int, int, int, int, int], bursts: float, rows: float
) -> None:
    assert estimate_box_cycles(DramModel(COSTS), *box) == pytest.approx(4 * bursts + 20 * rows)
