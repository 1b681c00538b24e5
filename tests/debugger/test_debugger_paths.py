"""The critical path of a run that stops at each layer, whatever its cores do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_sessions import FAR, GET, TABLES, TWO_CORES, USE, WAIT_LOAD, WAIT_VECTOR
from tiers import examples

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.core.device import Device
from nmpsim.debugger import Debugger

LAYERS = 3
LAYER = ".layer 0, copy, copy, to\n"
PIECES = (GET, FAR, USE, WAIT_LOAD, WAIT_VECTOR)


def make_source(cores: list[list[list[str]]]) -> str:
    """Return a program with, for each core and layer, some pieces before the layer's barrier."""
    layers = [f".buffer b{n}, i8[S:1.0 O:0]<256>\n.layer {n}, l{n}, copy, b{n}, {n}\n"
              for n in range(LAYERS)]  # fmt: skip
    last = f".layer {LAYERS}, end, copy, to\n"
    text = TABLES.replace(LAYER, "".join(layers) + last)
    text += "_start:\n csrr t3, mhartid\n bnez t3, core_1\n"
    for number, core in enumerate(cores):
        text += f"core_{number}:\n"
        for layer, pieces in enumerate(core):
            text += "".join(pieces) + f" li a0, {layer}\n li a1, 2\n nmp.barrier a0, a1\n"
        text += WAIT_LOAD + WAIT_VECTOR + " nmp.halt\n"
    return text


def make_bundle(text: str) -> Bundle:
    return parse_bundle(assemble(text, "test.s", TWO_CORES.settings()).build_bundle())


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Generate scalar programs, with few tensor instructions or none."""
    loops = st.integers(1, 60).map(lambda n: f" li t2, {n}\n" + " addi t2, t2, -1\n" * (n % 7))
    pieces = draw(st.sampled_from((loops, loops | st.sampled_from(PIECES))))
    layer = st.lists(pieces, max_size=4)
    core = st.lists(layer, min_size=LAYERS, max_size=LAYERS)
    return make_source(draw(st.lists(core, min_size=2, max_size=2)))


@given(programs())
@examples(40)
def test_every_cycle_is_on_the_path(text: str) -> None:
    bundle, inputs = make_bundle(text), {"from": np.zeros(256, np.int8)}
    whole = Device(TWO_CORES, "reference").run(bundle, inputs, strict=False)
    debugger = Debugger(bundle, inputs)
    debugger.run()
    report = debugger.report()
    assert report.cycles == whole.cycles
    assert report.critical_path == whole.critical_path
    assert [one.critical_path for one in report.layers] == [
        one.critical_path for one in whole.layers
    ]
    assert sum(report.critical_path.values()) == report.cycles
