"""Another scale for a tensor whose integers the host passes on as they are."""

from __future__ import annotations

import pytest

from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.debugger.scale_changes import compute_scale_change, recompile_bundle
from nmpsim.diagnostics import UserError
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

TEXT = """function net
declare {
  %x = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<4 x 8> mutable // size: 32
  %out = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<4 x 8> mutable // size: 32

  ; size = 64 bytes
}

code {
  0 %a = allocactivation { Ty: i8[S:0.500000000 O:0][-64.000,63.500]<4 x 8>}
  1 %larger = elementmax @out %a, @in %x, @in %x
  2 %turned = flip @out %out, @in %a { Axis: 1}
  3 %end = deallocactivation @out %a
}
"""


def test_a_scale_shared_by_a_host_operation_is_refused() -> None:
    module = parse(TEXT, "net.lir")
    verify(module)
    bundle = parse_bundle(compile_module(module, default_device()))
    with pytest.raises(UserError) as caught:
        compute_scale_change(recompile_bundle(bundle, module), bundle.metadata.layers[0], 0.25)
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.found) == ("DEBUG002", "turned computes the tensor on the host")
