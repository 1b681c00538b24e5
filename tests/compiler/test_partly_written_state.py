"""A placeholder that an instruction changes in part: what it held before is an input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle

TEXT = """function state
declare {{
  %a = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<2> mutable // size: 2
  %y = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<5> mutable // size: 5

  ; size = 7 bytes
}}

code {{
{touch}  {number} %i = inserttensor @inout %y, @in %a {{ Offsets: [1], Count: 1, Axis: 0}}
}}
"""


@pytest.mark.parametrize("touched", [False, True])
def test_a_partly_written_state_is_an_input_unless_touched(tmp_path: Path, touched: bool) -> None:
    lir = tmp_path / "state.lir.txt"
    touch = "  0 %t = touch @out %y\n" if touched else ""
    lir.write_text(TEXT.format(touch=touch, number=1 if touched else 0), encoding="utf-8")
    bundle = parse_bundle(nmpsim.compile(lir).image)
    inputs = {"a": np.array([1, 2], np.int8), "y": np.full(5, 9, np.int8)}
    if touched:
        del inputs["y"]

    report = nmpsim.Device().run(bundle, inputs)

    assert [t.name for t in bundle.metadata.outputs] == ["y"]
    rest = 0 if touched else 9
    assert report.outputs["y"].tolist() == [rest, 1, 2, rest, rest]
