"""Tilings of a chain that are considered, and a rough estimate of their cycles."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.compiler.tiling.chain_buffers import get_fewest_constant_bytes
from nmpsim.compiler.tiling.chain_layers import (
    CONV,
    DEPTHWISE,
    PAIR,
    Chain,
    ChainLayer,
    count_constant_bytes,
)
from nmpsim.compiler.tiling.chain_rows import (
    ChainTiling,
    Strips,
    TensorRows,
    divide_channels,
    divide_rows,
    has_all_channels,
)
from nmpsim.compiler.tiling.grid import compute_offsets
from nmpsim.config import DeviceConfig
from nmpsim.timing import Costs
from nmpsim.timing.compute import (
    count_conv_cycles,
    count_depthwise_cycles,
    count_pool_cycles,
    count_vector_cycles,
)

STRIPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of cores along the rows that are considered."""
TURNS = (2, 3, 4, 5, 7, 8, 10, 14)
"""Numbers of strips for each core that the search tries in addition to 1."""
CHANNEL_RANGES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32)
"""Numbers of cores along the channels that the search tries in addition to 1."""
EXCHANGE_CYCLES = 250
"""Rough cost of an exchange through DRAM."""
START_CYCLES = 150
"""Rough cost of the first loads and the last stores."""
DRAM_SHARE = 1.1
"""Rough ratio of the DRAM's busy cycles to bytes / ``bytes_per_cycle``."""
LATE_SHARE = 0.35
"""Rough share of the smaller of transfers and computation that does not overlap the larger."""
LATE_SHARE_OF_STRIPS = 0.2
"""The same if each core computes several strips."""


def list_chain_tilings(
    chain: Chain, config: DeviceConfig
) -> Mapping[tuple[int, ...], list[ChainTiling]]:
    """Return the candidate tilings of a chain by the layers whose rows the cores exchange."""
    rows, cores = chain.result.rows, config.cores_count
    halos = [
        position
        for position, layer in enumerate(chain.layers[:-1])
        if any(
            layer.output in user.inputs
            and user.axes is not None
            and user.axes[0].kernel > user.axes[0].stride
            for user in chain.layers
        )
    ]
    strips = [n for n in STRIPS if n <= min(rows, cores)]
    found: dict[tuple[int, ...], list[ChainTiling]] = {
        (): [
            *(ChainTiling(down) for down in strips if down > 1 or rows == 1),
            *(
                ChainTiling(down, strips=turns)
                for down, turns in itertools.product(strips, TURNS)
                if down * turns <= rows
            ),
            *(
                ChainTiling(down, across)
                for across, down in itertools.product(CHANNEL_RANGES, (1, 2, 4))
                if across * down <= cores
                and down <= rows
                and divide_channels(chain, across) is not None
            ),
        ]
    }
    exchanges = [halos, halos[::2], halos[1::2]] if len(halos) > 2 else [halos]
    for exchanged in map(tuple, exchanges if halos else ()):
        found[exchanged] = [ChainTiling(down, exchanged=exchanged) for down in strips if down > 1]
    return found


def estimate_cycles(
    chain: Chain, tilings: Sequence[ChainTiling], costs: Costs, capacity: int
) -> npt.NDArray[np.float64]:
    """Estimate the cycles of tilings from their bytes and computation alone.

    The tilings exchange the rows of the same layers. A tiling that is impossible, or whose tensors
    exceed a scratchpad of ``capacity`` bytes, takes infinitely long.
    """
    exchanged = tilings[0].exchanged
    down, across, turns = np.array([(one.down, one.across, one.strips) for one in tilings]).T
    strips = Strips.from_counts((down * turns).tolist())
    starts = compute_offsets(down * turns)[:-1]
    rows, is_valid = divide_rows(chain, strips, exchanged)
    outputs = {chain.layers[position].output for position in exchanged}
    constant_bytes = count_constant_bytes(chain)
    moved = down * constant_bytes
    sizes = {}
    for name, tensor in chain.tensors.items():
        own = rows[name]
        high = np.maximum.reduceat(own.held.size + own.above + own.below, starts)
        pixel = tensor.pixel_bytes / (1 if has_all_channels(chain, name, 2) else across)
        sizes[name] = high * (tensor.columns + own.left + own.right) * pixel
        held, nbytes = np.add.reduceat(own.held.size, starts), 0 * down
        if own.computed is None:
            is_shared = has_all_channels(chain, name, 2)
            nbytes = held * across if is_shared else held
        elif name in outputs:
            nbytes = 2 * (held - np.add.reduceat(own.computed.size, starts))
        if name in chain.stored:
            nbytes = nbytes + tensor.rows
        moved = moved + nbytes * tensor.row_bytes
    ranges = np.repeat(across, down * turns)
    work = sum(_count_cycles(chain, layer, rows, ranges, costs) for layer in chain.layers)
    by_core = np.add.reduceat(work, compute_offsets(np.repeat(turns, down))[:-1])
    busiest = np.maximum.reduceat(by_core, compute_offsets(down)[:-1])
    memory = moved / costs.dram_bytes_per_cycle * DRAM_SHARE
    late = np.where(turns == 1, LATE_SHARE, LATE_SHARE_OF_STRIPS)
    start = START_CYCLES + EXCHANGE_CYCLES * len(exchanged)
    total = np.maximum(busiest, memory) + late * np.minimum(busiest, memory) + start
    needed: Any = 0
    for layer in chain.layers:
        used = sum(sizes[name] for name in (*layer.inputs, layer.output))
        needed = np.maximum(needed, used)
    is_possible = np.logical_and.reduceat(is_valid, starts)
    is_possible &= needed + get_fewest_constant_bytes(constant_bytes, turns) <= capacity
    return np.where(is_possible, total, np.inf)


def _count_cycles(
    chain: Chain, layer: ChainLayer, rows: Mapping[str, TensorRows], ranges: Any, costs: Costs
) -> Any:
    """Return [strips] the cycles of a layer's unit; ``ranges`` counts the ranges of channels."""
    target = chain.tensors[layer.output]
    computed = rows[layer.output].computed
    assert computed is not None
    count: Any = computed.size
    pixels, channels = count * target.columns, -(-target.channels // ranges)
    wide = target.view.element
    if layer.mnemonic == PAIR:
        return count_vector_cycles(count, target.columns * channels, wide, costs)
    assert layer.axes is not None
    taps = layer.axes[0].kernel, layer.axes[1].kernel
    if layer.mnemonic == CONV:
        assert layer.weighted is not None
        depth = layer.weighted.depth
        return count_conv_cycles(pixels, *taps, depth, channels, 1, wide, costs)
    unit_cycles = count_depthwise_cycles if layer.mnemonic == DEPTHWISE else count_pool_cycles
    return unit_cycles(pixels, taps[0] * taps[1], channels, wide, costs)
