"""Programs as graphs: who reads whose results."""

from pathlib import Path

import nmpsim
from nmpsim.analysis.data_flow import build_data_flow
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

PARTS = """function main
declare {
  %x = WeightVar float<2 x 2> mutable
  %y = WeightVar float<4 x 2> mutable
  %c = WeightVar float<2 x 2> const
}
code {
  0 %a_res = allocactivation { Ty: float<2 x 2>}
  1 %a = elementadd @out %a_res, @in %x, @in %c
  2 %joined_res = allocactivation { Ty: float<4 x 2>}
  3 %zero = splat @out %joined_res { Value: 0.0}
  4 %put = inserttensor @inout %joined_res, @in %x { Offsets: [0, 0], Count: 1, Axis: 0}
  5 %lower = tensorview @in %joined_res { Ty: float<2 x 2>, Offsets: [2, 0]}
  6 %copied = copy @out %lower, @in %a_res
  7 %dealloc_a_res = deallocactivation @out %a_res
  8 %relu = elementmax @out %joined_res, @in %joined_res, @in %joined_res
  9 %flat = tensorview @in %joined_res { Ty: float<8>, Offsets: [0, 0]}
  10 %seen = tensorview @in %flat { Ty: float<4 x 2>, Offsets: [0]}
  11 %saved = copy @out %y, @in %seen
  12 %dealloc_joined_res = deallocactivation @out %joined_res
}
"""


def test_readers_of_results_are_found():
    module = parse(PARTS)
    verify(module)
    flow = build_data_flow(module)
    assert flow.sources == {
        "a": ("x",),
        "zero": (),
        "put": ("x",),
        "copied": ("a",),
        "relu": ("zero", "put", "copied"),  # written in parts, also through a view
        "saved": ("relu",),  # in place: what was there before is gone
    }
    assert flow.outputs == {"y": ("saved",)}


def test_edges_of_a_bundle_are_found():
    digits = Path(__file__).parents[2] / "programs" / "digits"
    compiled = nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz", tiling="simple")
    layers = len(compiled.bundle.metadata.layers)
    assert nmpsim.layer_edges(compiled.bundle) == tuple((n, n + 1) for n in range(layers - 1))
