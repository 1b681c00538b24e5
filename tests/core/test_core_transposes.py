"""Strided copies with elements that lie on one another: the last one in their order stays."""

from __future__ import annotations

from itertools import product
from random import Random

import attrs
import numpy as np
import pytest
from core_machines import SPM, from_descriptors, run_both

OUT = 4096


@pytest.mark.parametrize("seed", range(6))
def test_overlapping_elements_keep_the_last_value(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 2, 4, 8])
    sizes = [random.randint(1, 4) for _ in range(4)]
    from_strides = [random.randint(0, 40) for _ in range(4)]
    to_strides = [random.choice([0, 1, 2, 8, 16]) for _ in range(4)]
    words = {"input": SPM, "output": SPM + OUT, "element_bytes": size}
    for d in range(4):
        words |= {f"size_{d}": sizes[d], f"in_stride_{d}": from_strides[d]}
        words[f"out_stride_{d}"] = to_strides[d]
    memory = np.random.default_rng(seed).integers(-128, 128, 2 * OUT, dtype=np.int8)
    program = attrs.evolve(from_descriptors(("nmp.transpose", words)), scratchpad=memory)
    expected = memory.copy()
    for place in product(*map(range, sizes)):
        source = sum(at * stride for at, stride in zip(place, from_strides, strict=True))
        target = sum(at * stride for at, stride in zip(place, to_strides, strict=True)) + OUT
        expected[target : target + size] = memory[source : source + size]
    m = run_both(program)
    np.testing.assert_array_equal(m.scratchpad.view(np.int8)[0, : 2 * OUT], expected)
