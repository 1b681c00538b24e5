"""Cycles of the units: each formula of docs/timing.md, counted step by step on many shapes."""

from __future__ import annotations

from itertools import product

import attrs
import pytest

from nmpsim.config import DeviceConfig, default_device
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.bounds import (
    compute_burst_efficiency,
    compute_mac_bound,
    compute_memory_bound,
    compute_vector_bound,
    count_macs_per_cycle,
)
from nmpsim.timing.compute import (
    ceil_div,
    count_conv_cycles,
    count_depthwise_cycles,
    count_gemm_cycles,
    count_grant_ticks,
    count_lanes,
    count_pool_cycles,
    count_transpose_cycles,
    count_vector_cycles,
)
from nmpsim.timing.work import DEPTHWISE, ELEMENT, LANES, PRODUCT, count_unit_cycles

INT8, INT16 = 0, 1
ELEMENTS = pytest.mark.parametrize("wide", [INT8, INT16])


def device(**settings: int) -> DeviceConfig:
    return attrs.evolve(default_device(), **settings)


DEVICES = (
    device(),
    device(mac_in_lanes=1, mac_out_lanes=1, vector_lanes=1, mac_startup_cycles=0),
    device(mac_in_lanes=7, mac_out_lanes=5, vector_lanes=3, vector_startup_cycles=0),
    device(mac_in_lanes=16, mac_out_lanes=3, vector_lanes=64, mac_startup_cycles=21),
)


def batches(count: int, lanes: int) -> int:
    """Count the steps in which ``lanes`` items at a time finish ``count`` items."""
    taken = 0
    while count > 0:
        count -= lanes
        taken += 1
    return taken


def get_lanes(lanes: int, wide: int) -> int:
    """Return the lanes for an element type: half for Int16, but at least one."""
    return lanes if wide == INT8 else max(lanes // 2, 1)


def test_costs_are_the_settings_of_the_same_name() -> None:
    names = [name for name in Costs._fields if name not in Costs._field_defaults]
    settings = {name: 1000 + place for place, name in enumerate(names)}
    assert get_costs(device(**settings))._asdict() == settings | Costs._field_defaults


def test_cycles_equal_the_numbers_of_the_page() -> None:
    """Default device: 8 x 8 MACs after 8 cycles, 16 vector lanes after 4."""
    costs = get_costs(default_device())
    # 6 pixels, a 3x3 window of 5 channels: 3 rows of ceil(15 / 8) = 2 steps; 20 channels, 3 blocks.
    assert count_conv_cycles(6, 3, 3, 5, 20, 1, INT8, costs) == 8 + 6 * (3 * 2) * 3
    # Half the input lanes: ceil(15 / 4) = 4 steps a row.
    assert count_conv_cycles(6, 3, 3, 5, 20, 1, INT16, costs) == 8 + 6 * (3 * 4) * 3
    # Two groups of 10 channels are two times two blocks.
    assert count_conv_cycles(6, 3, 3, 5, 20, 2, INT8, costs) == 8 + 6 * (3 * 2) * 4
    # 9 taps of ceil(20 / 8) = 3 blocks; Int16 has 4 of the output lanes: 5 blocks.
    assert count_depthwise_cycles(6, 9, 20, INT8, costs) == 8 + 6 * 9 * 3
    assert count_depthwise_cycles(6, 9, 20, INT16, costs) == 8 + 6 * 9 * 5
    # 7 rows, ceil(30 / 8) = 4 steps, for Int16 ceil(30 / 4) = 8; 3 blocks of columns.
    assert count_gemm_cycles(7, 30, 20, INT8, costs) == 8 + 7 * 4 * 3
    assert count_gemm_cycles(7, 30, 20, INT16, costs) == 8 + 7 * 8 * 3
    # ceil(40 / 16) = 3 batches, for Int16 ceil(40 / 8) = 5.
    assert count_vector_cycles(7, 40, INT8, costs) == 4 + 7 * 3
    assert count_vector_cycles(7, 40, INT16, costs) == 4 + 7 * 5
    assert count_pool_cycles(6, 9, 40, INT8, costs) == 4 + 6 * 9 * 3
    assert count_pool_cycles(6, 9, 40, INT16, costs) == 4 + 6 * 9 * 5
    assert count_transpose_cycles(64, costs) == 68
    assert count_transpose_cycles(65, costs) == 69


@ELEMENTS
@pytest.mark.parametrize("config", DEVICES)
def test_convolutions_take_their_cycles(config: DeviceConfig, wide: int) -> None:
    costs = get_costs(config)
    in_lanes = get_lanes(config.mac_in_lanes, wide)
    shapes = product((1, 6, 49), (1, 3), (1, 2, 5), (1, 3, 8, 17), (1, 2), (1, 7, 8, 9, 33))
    for pixels, kernel_h, kernel_w, depth, groups, channels in shapes:
        cycles = config.mac_startup_cycles
        steps = batches(kernel_w * depth, in_lanes)
        for _ in range(kernel_h * groups):
            cycles += pixels * steps * batches(channels, config.mac_out_lanes)
        found = count_conv_cycles(
            pixels, kernel_h, kernel_w, depth, channels * groups, groups, wide, costs
        )
        assert found == cycles


@ELEMENTS
@pytest.mark.parametrize("config", DEVICES)
def test_depthwise_convolutions_take_their_cycles(config: DeviceConfig, wide: int) -> None:
    costs, out_lanes = get_costs(config), get_lanes(config.mac_out_lanes, wide)
    for pixels, taps, channels in product((1, 6, 49), (1, 9, 25), (1, 3, 4, 8, 9, 33)):
        cycles = config.mac_startup_cycles + pixels * taps * batches(channels, out_lanes)
        assert count_depthwise_cycles(pixels, taps, channels, wide, costs) == cycles


@ELEMENTS
@pytest.mark.parametrize("config", DEVICES)
def test_matrix_products_take_their_cycles(config: DeviceConfig, wide: int) -> None:
    costs, in_lanes = get_costs(config), get_lanes(config.mac_in_lanes, wide)
    for rows, inner, columns in product((1, 7, 40), (1, 3, 8, 17, 70), (1, 5, 8, 9, 200)):
        steps = batches(inner, in_lanes) * batches(columns, config.mac_out_lanes)
        assert count_gemm_cycles(rows, inner, columns, wide, costs) == (
            config.mac_startup_cycles + rows * steps
        )


@ELEMENTS
@pytest.mark.parametrize("config", DEVICES)
def test_vector_instructions_take_their_cycles(config: DeviceConfig, wide: int) -> None:
    costs, lanes = get_costs(config), get_lanes(config.vector_lanes, wide)
    for rows, columns in product((1, 7, 40), (1, 3, 8, 16, 17, 65, 200)):
        cycles = config.vector_startup_cycles + rows * batches(columns, lanes)
        assert count_vector_cycles(rows, columns, wide, costs) == cycles
    for pixels, taps, channels in product((1, 6), (1, 4, 9), (1, 16, 17, 64, 65)):
        cycles = config.vector_startup_cycles + pixels * taps * batches(channels, lanes)
        assert count_pool_cycles(pixels, taps, channels, wide, costs) == cycles


@pytest.mark.parametrize("config", DEVICES)
def test_a_transpose_takes_a_cycle_for_each_element(config: DeviceConfig) -> None:
    costs = get_costs(config)
    for elements in (*range(1, 300), 4096, 100_000):
        assert count_transpose_cycles(elements, costs) == config.vector_startup_cycles + elements


def test_lanes_divide_the_work_into_batches() -> None:
    assert [count_lanes(lanes, INT8) for lanes in (1, 2, 3, 8)] == [1, 2, 3, 8]
    assert [count_lanes(lanes, INT16) for lanes in (1, 2, 3, 8)] == [1, 1, 1, 4]
    for value, by in product(range(1, 40), range(1, 12)):
        assert ceil_div(value, by) == batches(value, by)


@ELEMENTS
@pytest.mark.parametrize("config", DEVICES)
@pytest.mark.parametrize("cores", [1, 32])
def test_bounds_equal_their_formulas(config: DeviceConfig, wide: int, cores: int) -> None:
    config = attrs.evolve(config, cores_count=cores)
    peak = 0
    for _ in range(cores * config.mac_out_lanes):
        peak += get_lanes(config.mac_in_lanes, wide)
    assert count_macs_per_cycle(config, wide) == peak
    for macs in (1, peak - 1, peak, peak + 1, 10 * peak, 10 * peak + 1):
        assert compute_mac_bound(macs, wide, config) == batches(macs, peak)
    for busy in (0, 1, cores - 1, cores, cores + 1, 7 * cores + 5):
        assert compute_vector_bound(busy, config) == batches(busy, cores)


@pytest.mark.parametrize(("burst", "width"), [(64, 16), (64, 24), (16, 64)])
def test_the_memory_bound_equals_its_formula(burst: int, width: int) -> None:
    config = device(dram_burst_bytes=burst, dram_bytes_per_cycle=width)
    for bursts in (0, 1, 3, 64, 1000):
        assert compute_memory_bound(bursts, get_costs(config)) == batches(bursts * burst, width)


def test_burst_efficiency_is_the_share_of_used_bytes() -> None:
    assert compute_burst_efficiency(4096, 64, device(dram_burst_bytes=64)) == 1.0
    assert compute_burst_efficiency(96, 2, device(dram_burst_bytes=64)) == 0.75
    assert compute_burst_efficiency(96, 2, device(dram_burst_bytes=32)) == 1.5
    assert compute_burst_efficiency(96, 1, device(dram_burst_bytes=32)) == 3.0
    assert compute_burst_efficiency(0, 0, device()) == 0.0


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_channel_moves_its_share_of_the_bandwidth(channels: int) -> None:
    """All channels together move one byte in a tick."""
    ticks = sum(1 for _ in range(100) for _ in range(channels))
    assert count_grant_ticks(100, get_costs(device(dram_channels=channels))) == ticks


@pytest.mark.parametrize("throughput", [PRODUCT, DEPTHWISE, LANES, ELEMENT])
def test_a_free_unit_works_for_no_cycles(throughput: int) -> None:
    costs, shape = get_costs(device()), (5, 7, 40, 1, INT8)
    is_mac = throughput in (PRODUCT, DEPTHWISE)
    for mac, vector in product((0, 1), repeat=2):
        free = costs._replace(is_mac_timed=mac, is_vector_timed=vector)
        cycles = count_unit_cycles(throughput, *shape, free)
        expected = count_unit_cycles(throughput, *shape, costs)
        assert cycles == (expected if (mac if is_mac else vector) else 0)
        assert expected > 0
