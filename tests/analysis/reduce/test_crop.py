"""A layer that works element by element can be cropped to one element, whatever it calculates."""

from __future__ import annotations

import numpy as np
import pytest

from nmpsim.analysis.reduce.crop import crop_layer
from nmpsim.analysis.reduce.extract import ExtractedProgram
from nmpsim.interpreter import execute_exact
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

TEXT = """function net
declare {{
  %x = WeightVar float<2 x 3> mutable // size: 24
  %y = WeightVar float<2 x 3> mutable // size: 24
  %out = WeightVar float<2 x 3> mutable // size: 24

  ; size = 72 bytes
}}

code {{
  0 %it = {instruction}
}}
"""


@pytest.mark.parametrize(
    "instruction",
    [
        "elementdiv @out %out, @in %x, @in %y",
        "elementsqrt @out %out, @in %x",
        "hardswish @out %out, @in %x",
        "elementmax @out %out, @in %x, @in %y",
        "elementrsubconst @out %out, @in %x { LHS: 2.5}",
        "clip @out %out, @in %x { Min: -1.0, Max: 2.0}",
    ],
)
def test_one_element_is_reproduced(instruction: str) -> None:
    module = parse(TEXT.format(instruction=instruction), "net.lir")
    verify(module)
    rng = np.random.default_rng(1)
    inputs = {name: rng.uniform(0, 4, (2, 3)).astype(np.float32) for name in "xy"}
    cropped = crop_layer(ExtractedProgram(module, inputs), (1, 2))
    results = []
    for part in (ExtractedProgram(module, inputs), cropped):
        execution = execute_exact(part.module, part.inputs)
        for _ in execution:
            pass
        results.append(execution.copy_values("out"))
    whole, element = results
    assert element.shape == (1, 1)
    np.testing.assert_array_equal(element[0, 0], whole[1, 2])
