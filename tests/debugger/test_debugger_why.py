"""Why an element is what it is: the arithmetic told is the arithmetic done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compiled, get_weights_path

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.debugger import Debugger
from nmpsim.debugger.explanation import explain_element, find_readers


def check_elements(debugger: Debugger, seed: int) -> int:
    """Check one element of each layer; return the number of elements that the device computed."""
    rng, told = np.random.default_rng(seed), 0
    for layer in debugger.layers:
        at = tuple(int(rng.integers(0, n)) for n in layer.output.shape)
        found = explain_element(debugger, layer, at)
        assert found.value == debugger.layer_outputs[layer.index][at]
        if layer.placement == "device":
            told += 1
            assert found.made is not None, (layer.name, at, found.sources)
            assert found.made.result == found.value, (layer.name, at)
            assert found.events[-1].what == "store"
    return told


def test_why_explains_every_layer_of_the_digits(debugger: Debugger) -> None:
    debugger.run()
    position = debugger.position
    assert check_elements(debugger, 3) == 5
    assert debugger.position == position


@pytest.mark.parametrize(
    ("program", "numerics"),
    [
        ("minimob/i8_sym_b32/cpumax", "glow-int"),
        ("minimob/i8_pow2_b8/cpumax", "float"),
        ("minires/i16_pow2_b16/nmp", "glow-int"),
        ("minires/i8_asym_b32_channelwise/interp", "glow-float"),
        ("lenet/i8_asym_b32/cpuold", "q31"),
        ("minimob/i8_asym_b32/cpumax", "float-onednn"),
        ("lenet/i16_pow2_b16/nmpold", "float-fbgemm"),
        ("lenet/i8_sym_b32/cpu", "float-qnnpack"),
    ],
)
def test_why_explains_recorded_programs(shared: Path, program: str, numerics: str) -> None:
    text = shared / "lir" / f"{program}.lir.txt"
    # Of an Int8 softmax only Glow's arithmetic and TFLite's are known.
    by_layer = {"prob": "glow-int"} if program == "lenet/i8_sym_b32/cpu" else {}
    bundle = compiled(text, numerics=numerics, layer_numerics=by_layer)
    with np.load(get_weights_path(text)) as file:
        inputs = {t.name: file[f"input/{t.name}"] for t in bundle.metadata.inputs}
    debugger = Debugger(bundle, inputs)
    debugger.run()
    assert check_elements(debugger, 5) > 5


def test_the_window_is_named(debugger: Debugger) -> None:
    debugger.run()
    layer = debugger.layers[1]
    found = explain_element(debugger, layer, (0, 0, 0, 4))
    padding = [named for named in found.terms if not named.input]
    assert len(padding) == 5, "the corner of a 3x3 window with a pad of 1"
    values = debugger.layer_outputs[0]
    for named in found.terms:
        if named.input:
            at = named.input.partition("[")[2].rstrip("]")
            assert values[tuple(int(i) for i in at.split(","))] == named.term.input
    (pool,) = find_readers(debugger, layer, (0, 3, 3, 4))
    assert (pool.layer, pool.instruction) == ("pool1__2", "nmp.load")


def test_why_refuses_unfinished_layers(debugger: Debugger) -> None:
    with pytest.raises(nmpsim.UserError, match="has not run yet"):
        explain_element(debugger, debugger.layers[3], (0, 0, 0, 0))


def test_why_explains_conversions_of_the_host(debugger: Debugger, seven: dict[str, Any]) -> None:
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (0, 0, 3, 3))
    assert found.made is not None
    x, (scaled, whole, clip) = seven["data"][0, 0, 3, 3], found.made.steps
    assert found.terms[0].input == "data[0, 0, 3, 3]"
    assert found.made.terms[0].input == x
    assert scaled.value == float(x / np.float32(debugger.layers[0].output.scale))
    assert whole.value == round(scaled.value) + (debugger.layers[0].output.offset or 0)
    assert clip.value == found.value
    back = explain_element(debugger, debugger.layers[6], (0, 7))
    assert back.made is not None
    source = debugger.layers[5].output
    q = int(debugger.layer_outputs[5][0, 7])
    assert back.made.steps[0].value == q - (source.offset or 0)
    assert np.float32(back.made.steps[0].value) * np.float32(source.scale) == back.value


def test_why_lists_operands_of_host_layers(debugger: Debugger) -> None:
    debugger.run()
    found = explain_element(debugger, debugger.layers[-1], (0, 7))
    source: Any = found.sources[0]
    assert source.startswith("fc__1_dequantize_res")


BY_HAND = """
.output to, i8[S:1.0 O:0]<64>
.layer 0, copy, copy, to
put: .descriptor store, dram=to+16, spm=0x20000000, run_bytes=16, count_x=1, count_y=1
fill: .descriptor fill, output=0x20000008, count=8, value=11
_start:
 csrr t2, mhartid
 bnez t2, other
 la t5, to
 li t6, -7
 sb t6, 5(t5)
 li t5, 0x20000000
 li t6, 0x04030201
 sw t6, 4(t5)
 la t0, fill
 nmp.fill t0
 nmp.wait vector, 0
 la t0, put
 nmp.store t0
 nmp.wait store, 0
other:
 nmp.halt
"""


@pytest.mark.parametrize(
    ("at", "value", "step"),
    [(5, -7, "sb of 0xfffffff9"), (22, 3, "sw of 0x4030201"), (27, 11, "the descriptor's")],
)
def test_why_names_scalar_stores(at: int, value: int, step: str) -> None:
    settings = nmpsim.default_device().settings()
    debugger = Debugger(parse_bundle(assemble(BY_HAND, "by_hand.s", settings).build_bundle()), {})
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (at,))
    assert found.made is not None
    assert (found.value, found.made.result) == (value, value)
    assert found.made.steps[-1].formula.startswith(step)


def test_why_reports_unwritten_bytes() -> None:
    settings = nmpsim.default_device().settings()
    debugger = Debugger(parse_bundle(assemble(BY_HAND, "by_hand.s", settings).build_bundle()), {})
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (60,))
    assert found.made is None
    assert found.sources == ("no layer wrote the element",)
