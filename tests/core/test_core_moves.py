"""Instructions that move bytes, against plain loops: nmp.fill, nmp.lut, nmp.load, nmp.store."""

from __future__ import annotations

from random import Random

import attrs
import numpy as np
import pytest
from core_machines import RAM_BASE, SPM, from_descriptors, run_both

OUT, TABLE = 4096, 8192
BYTES = np.random.default_rng(5).integers(-128, 128, 3 * OUT, dtype=np.int8)


@pytest.mark.parametrize(("element", "value"), [("int8", -7), ("int16", -300)])
def test_fill_writes_a_value_to_each_element(element: str, value: int) -> None:
    words = {"element": element, "output": SPM + 6, "count": 9, "value": value}
    program = attrs.evolve(from_descriptors(("nmp.fill", words)), scratchpad=BYTES)
    size = np.dtype(element).itemsize
    expected = BYTES.copy()
    for number in range(9):
        start = 6 + number * size
        pattern = (value % 256**size).to_bytes(size, "little")
        expected[start : start + size] = np.frombuffer(pattern, np.int8)
    np.testing.assert_array_equal(
        run_both(program).scratchpad.view(np.int8)[0, : BYTES.size], expected
    )


def test_lut_reads_a_table_that_begins_with_the_entry_of_minus_128() -> None:
    words = {"input": SPM, "output": SPM + OUT, "table": SPM + TABLE, "count": 600}
    program = attrs.evolve(from_descriptors(("nmp.lut", words)), scratchpad=BYTES)
    expected = BYTES.copy()
    for number in range(600):
        expected[OUT + number] = BYTES[TABLE + int(BYTES[number]) + 128]
    np.testing.assert_array_equal(
        run_both(program).scratchpad.view(np.int8)[0, : BYTES.size], expected
    )


def random_box(random: Random) -> dict[str, int]:
    return {
        "dram": RAM_BASE + random.randint(0, 50),
        "spm": SPM + random.randint(0, 50),
        "run_bytes": random.randint(1, 9),
        "count_x": random.randint(1, 4),
        "count_y": random.randint(1, 4),
        "dram_stride_x": random.randint(9, 20),
        "dram_stride_y": random.randint(80, 120),
        "spm_stride_x": random.randint(9, 20),
        "spm_stride_y": random.randint(140, 160),
    }


def run_starts(box: dict[str, int], side: str, rows: range, columns: range) -> list[int]:
    """Return where the runs of a box start on one side, from the side's first byte."""
    return [
        y * box[f"{side}_stride_y"] + x * box[f"{side}_stride_x"] for y in rows for x in columns
    ]


@pytest.mark.parametrize("seed", range(6))
def test_load_copies_a_box_and_pads_it(seed: int) -> None:
    random = Random(seed)
    box = random_box(random)
    left, right, above, below = (random.randint(0, 2) for _ in range(4))
    pads = {
        "pad_x_before": left, "pad_x_after": right, "pad_y_before": above, "pad_y_after": below,
    }  # fmt: skip
    program = from_descriptors(("nmp.load", {**box, **pads, "fill": -5}), ram=BYTES.tobytes())
    expected = BYTES.copy()
    target, source, run = box["spm"] - SPM, box["dram"] - RAM_BASE, box["run_bytes"]
    inside = range(above, above + box["count_y"]), range(left, left + box["count_x"])
    everything = range(inside[0].stop + below), range(inside[1].stop + right)
    for to in run_starts(box, "spm", *everything):
        expected[target + to : target + to + run] = -5
    copied = zip(
        run_starts(box, "spm", *inside),
        run_starts(box, "dram", range(box["count_y"]), range(box["count_x"])),
        strict=True,
    )
    for to, start in copied:
        values = BYTES[source + start : source + start + run]
        expected[target + to : target + to + run] = values
    m = run_both(attrs.evolve(program, scratchpad=BYTES))
    np.testing.assert_array_equal(m.scratchpad.view(np.int8)[0, : BYTES.size], expected)


@pytest.mark.parametrize("seed", range(6))
def test_store_copies_a_box_back(seed: int) -> None:
    box = random_box(Random(seed))
    program = from_descriptors(("nmp.store", box), ram=bytes(BYTES.size))
    expected = np.zeros_like(BYTES)
    rows, columns, run = range(box["count_y"]), range(box["count_x"]), box["run_bytes"]
    starts = zip(
        run_starts(box, "dram", rows, columns), run_starts(box, "spm", rows, columns), strict=True
    )
    target, source = box["dram"] - RAM_BASE, box["spm"] - SPM
    for to, start in starts:
        values = BYTES[source + start : source + start + run]
        expected[target + to : target + to + run] = values
    m = run_both(attrs.evolve(program, scratchpad=BYTES))
    np.testing.assert_array_equal(m.ram.view(np.int8)[: BYTES.size], expected)
