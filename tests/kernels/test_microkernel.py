"""Test sums of products of each instruction set against plain loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.cli.environment import get_numba_settings
from nmpsim.diagnostics import UserError
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.microkernel import (
    initialize_packed_weights,
    initialize_workspace,
    products,
    products_workspace_size,
)
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.packed_weights import get_packed_weights_size
from nmpsim.kernels.targets import SETTING, TARGETS, choose_target, restrict_features
from nmpsim.kernels.workspace_size import MAX_PIXELS
from nmpsim.memory.pure import register_pure_functions

Array = npt.NDArray[Any]
LANES = 16
# Kernels have no entry from Python.
register_pure_functions()
products_entry: Any = numba.njit(
    lambda inputs, base, offsets, window, weights, start, pixels, out, excess, workspace, packed: (
        products(
            inputs, base, offsets, window, weights, start, pixels, out, excess, workspace, packed
        )
    )
)
words_entry: Any = numba.njit(lambda blocks, depth: products_workspace_size(blocks, depth))
clear_entry: Any = numba.njit(lambda workspace: initialize_workspace(workspace))
clear_packed_entry: Any = numba.njit(lambda packed: initialize_packed_weights(packed))
WINDOWS = {
    "1x1": InputWindow(1, 0, 1, 0, 64),
    "1x1 odd": InputWindow(1, 0, 1, 0, 13),
    "3x3": InputWindow(3, 700, 1, 0, 96),
    "3x3 strided": InputWindow(3, 700, 3, 40, 12),
    "7x7x3": InputWindow(7, 690, 1, 0, 21),
    "one byte": InputWindow(1, 0, 1, 0, 1),
    "deep": InputWindow(1, 0, 1, 0, 4096),
}


def compute_naive_sum(
    inputs: Array, corner: int, window: InputWindow, weights: Array, lane: int
) -> int:
    """Compute the sum of one pixel and one lane, product by product."""
    fours = (window.length + 3) // 4
    per_block = window.rows * window.runs * fours * LANES * 4
    at = lane // LANES * per_block + lane % LANES * 4
    total = 0
    for row in range(window.rows):
        for run in range(window.runs):
            start = corner + row * window.row_stride + run * window.run_stride
            for k in range(window.length):
                w = int(weights[at + k // 4 * LANES * 4 + k % 4])
                total += int(inputs[start + k]) * w
            at += fours * LANES * 4
    return total


def draw_packed_weights(
    rng: np.random.Generator, window: InputWindow, blocks: int, values: list[int]
) -> Array:
    """Draw random blocks of packed weights; runs are padded with zeros to a multiple of four."""
    fours = (window.length + 3) // 4
    shape = (blocks, window.rows * window.runs, fours, LANES, 4)
    weights = rng.choice(np.array(values, np.int8), shape)
    if window.length % 4:
        weights[:, :, -1, :, window.length % 4 :] = 0
    return weights.reshape(-1)


def compute_numpy_sums(
    inputs: Array, offsets: Array, window: InputWindow, weights: Array, blocks: int
) -> Array:
    """Compute the sums of all pixels and lanes with NumPy, for runs of whole fours."""
    rows, runs = np.ogrid[: window.rows, : window.runs]
    starts = (rows * window.row_stride + runs * window.run_stride).reshape(-1, 1)
    windows = inputs[3 + offsets[:, None, None] + starts + np.arange(window.length)]
    lanes = weights.reshape(blocks, -1, LANES, 4).transpose(0, 2, 1, 3).reshape(blocks * LANES, -1)
    return windows.reshape(len(offsets), -1).astype(np.int64) @ lanes.T.astype(np.int64)


def compute_kernel_sums(
    inputs: Array, offsets: Array, window: InputWindow, weights: Array, pixels: int, blocks: int
) -> Array:
    """Compute the sums with the kernels and assert that nothing behind the arrays changes."""
    out = np.full((MAX_PIXELS + 1, blocks * LANES), 77, np.int32)
    excess = np.full(MAX_PIXELS + 1, 77, np.int32)
    depth = window.rows * window.runs * ((window.length + 3) // 4 * 4)
    workspace = np.full(words_entry(blocks, depth) + 1, 77, np.int64)
    packed = np.full(get_packed_weights_size(blocks, depth) + 1, 77, np.int64)
    clear_entry(workspace[:-1])
    clear_packed_entry(packed[:-1])
    made = excess[:-1], workspace[:-1], packed[:-1]
    products_entry(inputs, 3, offsets, window, weights, 0, pixels, out[:-1], *made)
    again, made = np.zeros_like(out[:-1]), (*made[:2], np.zeros_like(packed[:-1]))
    products_entry(inputs, 3, offsets, window, weights, 0, pixels, again, *made)
    np.testing.assert_array_equal(again[:pixels], out[:pixels])
    assert (out[-1] == 77).all()
    assert (workspace[-1], packed[-1]) == (77, 77)
    assert excess[-1] == 77
    return out[:pixels]


def check(window: InputWindow, pixels: int, blocks: int, values: list[int]) -> Array:
    rng = np.random.default_rng(pixels * 100 + blocks)
    inputs = rng.choice(np.array(values, np.int8), 12_000)
    offsets = rng.integers(0, 5_000, MAX_PIXELS)
    offsets[pixels:] = offsets[pixels - 1]
    weights = draw_packed_weights(rng, window, blocks, values)
    sums = compute_kernel_sums(inputs, offsets, window, weights, pixels, blocks)
    for p in {0, pixels // 2, pixels - 1}:
        corner = 3 + int(offsets[p])
        lanes = sorted({0, 1, LANES - 1, (blocks - 1) * LANES, blocks * LANES - 1})
        expected = [compute_naive_sum(inputs, corner, window, weights, lane) for lane in lanes]
        assert sums[p, lanes].tolist() == expected
    return sums


ALL = list(range(-128, 128))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("blocks", [1, 4, 7])
def test_random_windows_are_exact(name: str, blocks: int) -> None:
    check(WINDOWS[name], 13, blocks, ALL)


@pytest.mark.parametrize("pixels", [1, 47, 48, 49])
def test_windows_with_small_workspaces_are_exact(pixels: int) -> None:
    check(WINDOWS["deep"], pixels, 1, ALL)


@pytest.mark.parametrize("blocks", range(1, 13))
def test_tails_of_channels_are_exact(blocks: int) -> None:
    """Each pixel and each lane has sums of its own, whatever is left over."""
    rng = np.random.default_rng(blocks)
    window = WINDOWS["3x3 strided"]
    inputs = rng.integers(-128, 128, 12_000, np.int8)
    offsets = rng.integers(0, 5_000, MAX_PIXELS)
    weights = draw_packed_weights(rng, window, blocks, ALL)
    expected = compute_numpy_sums(inputs, offsets, window, weights, blocks)
    for pixels in range(1, MAX_PIXELS + 1):
        filled = offsets[np.minimum(np.arange(MAX_PIXELS), pixels - 1)]
        sums = compute_kernel_sums(inputs, filled, window, weights, pixels, blocks)
        np.testing.assert_array_equal(sums, expected[:pixels])
    check(window, MAX_PIXELS, blocks, ALL)


@pytest.mark.parametrize("values", [[-128], [127], [-128, 127], [0, 1, 64, 65, 127]])
@pytest.mark.parametrize("name", ["deep", "7x7x3"])
def test_extreme_values_are_exact(values: list[int], name: str) -> None:
    sums = check(WINDOWS[name], 7, 4, values)
    if values == [-128] and name == "deep":
        assert (sums == 4096 * 128 * 128).all()


def test_weights_beyond_16_bit_pairs_are_exact() -> None:
    """Few of them, many of them, at either end; inputs that are negative only in the end."""
    rng = np.random.default_rng(7)
    window, pixels, blocks = InputWindow(1, 0, 1, 0, 256), MAX_PIXELS, 3
    inputs = np.full(20_000, 127, np.int8)
    offsets = np.arange(MAX_PIXELS) * 256
    inputs[::3] = 126
    weights = rng.integers(-64, 65, blocks * 256 * LANES).astype(np.int8)
    for share in (0.0, 0.01, 1.0):
        chosen = rng.random(weights.size) < share
        weights[chosen] = rng.choice(np.array([-128, -65, 65, 127], np.int8), int(chosen.sum()))
        for last in (127, -1, -128):
            inputs[3 + 55 * 256 :] = last
            expected = compute_numpy_sums(inputs, offsets, window, weights, blocks)
            found = compute_kernel_sums(inputs, offsets, window, weights, pixels, blocks)
            np.testing.assert_array_equal(found, expected)


def test_packed_weights_are_cached() -> None:
    """Products of one block of weights after another, of any inputs, with what is kept of them."""
    rng = np.random.default_rng(8)
    window, blocks = InputWindow(1, 0, 1, 0, 100), 2
    weights = draw_packed_weights(rng, window, blocks, ALL)
    offsets = np.arange(MAX_PIXELS) * 100
    packed = np.zeros(get_packed_weights_size(blocks, 100), np.int64)
    for low in (0, 0, -128, 0):
        inputs = rng.integers(low, 128, 12_000).astype(np.int8)
        expected = compute_numpy_sums(inputs, offsets, window, weights, blocks)
        found = np.zeros((MAX_PIXELS, blocks * LANES), np.int32)
        workspace = np.zeros(words_entry(blocks, 100), np.int64)
        clear_entry(workspace)
        made = np.zeros(MAX_PIXELS, np.int32), workspace, packed
        products_entry(inputs, 3, offsets, window, weights, 0, MAX_PIXELS, found, *made)
        np.testing.assert_array_equal(found, expected)


def compute_digest() -> str:
    """Compute a string of totals over many kinds of sums."""
    sums = [check(w, 29, 5, ALL) for w in WINDOWS.values()]
    sums += [check(WINDOWS["1x1 odd"], p, 5, ALL) for p in range(1, MAX_PIXELS + 1)]
    total = [some.astype(np.int64).sum() for some in sums]
    return " ".join(map(str, total))


def run_digest_process(**settings: str) -> subprocess.CompletedProcess[str]:
    code = "import test_microkernel as t; print(t.compute_digest())"
    environment = {**os.environ, **settings}
    folder = Path(__file__).parent
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=folder
    )


@pytest.mark.slow
def test_all_targets_give_the_same_bytes() -> None:
    features = FEATURES
    possible = [name for name, needed in TARGETS.items() if features.issuperset(needed)]
    found = {}
    for name in possible:
        run = run_digest_process(**get_numba_settings({**os.environ, SETTING: name}))
        assert run.returncode == 0, run.stderr
        found[name] = run.stdout
    assert set(found.values()) == {compute_digest() + "\n"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_CPU_NAME": "generic"}])
def test_without(settings: dict[str, str]) -> None:
    """Without the compiler; without any but the processor family's first instructions."""
    run = run_digest_process(**settings)
    assert (run.returncode, run.stdout) == (0, compute_digest() + "\n"), run.stderr


BEST = frozenset(("+fma", "+avx512vl", *TARGETS["vnni"], *TARGETS["avx2"]))


def test_features_leave_no_better_kind() -> None:
    assert restrict_features("vnni", BEST) == BEST
    gone = {"-avx512vl", "-avx512f", "-avx512bw", "-avx512vnni"}
    for name, left in (("avx2", {"+fma", "+avx2", *gone}), ("portable", {"+fma", "-avx2", *gone})):
        assert restrict_features(name, BEST) == left
        assert choose_target(None, restrict_features(name, BEST)) == name
    without = frozenset(("+fma", *TARGETS["avx2"]))
    assert restrict_features("avx2", without) == without


def test_settings_become_numbas_options() -> None:
    best = ",".join(BEST)
    assert (
        get_numba_settings({})
        == get_numba_settings({SETTING: "", "NUMBA_CPU_FEATURES": best})
        == {}
    )
    assert get_numba_settings({SETTING: "vnni", "NUMBA_CPU_FEATURES": best}) == {}
    told = get_numba_settings({SETTING: "avx2", "NUMBA_CPU_FEATURES": best})
    assert told == {
        "NUMBA_CPU_FEATURES": "+avx2,+fma,-avx512bw,-avx512f,-avx512vl,-avx512vnni",
    }
    with pytest.raises(UserError, match="ENV001"):
        get_numba_settings({SETTING: "vnni", "NUMBA_CPU_NAME": "generic"})


def test_the_best_target_of_the_host_is_selected() -> None:
    assert choose_target(None, frozenset()) == "portable"
    assert choose_target(None, frozenset(TARGETS["avx2"])) == "avx2"
    assert choose_target("", BEST) == "vnni"
    assert choose_target("portable", BEST) == "portable"


@pytest.mark.parametrize(
    ("setting", "said"), [("vnni", "this host does not have"), ("fast", "is not a kernel target")]
)
def test_unavailable_targets_are_refused(setting: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        choose_target(setting, frozenset())
    assert caught.value.diagnostics[0].code == "ENV001"
    assert said in str(caught.value)
    assert setting in str(caught.value)
    assert "portable" in str(caught.value)
