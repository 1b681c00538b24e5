"""Rescale integers as the scales ask for them and as the device gets them, in every arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus import compiled, get_weights_path

from nmpsim.analysis.explain import explain_layers
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import UserError

CHANNELWISE = "minimob/i8_asym_b32_channelwise/interp"
GROUPED = "ChannelwiseQuantizedConv__6"
"""Grouped convolution of 32 channels."""


SOFTMAX = {"minires/i8_asym_b32/cpu": "prob"}
"""Int8 softmax of each program."""


def open_program(shared: Path, program: str, numerics: str) -> Shell:
    text = shared / "lir" / f"{program}.lir.txt"
    # Of an Int8 softmax only Glow's arithmetic and TFLite's are known.
    by_layer = {SOFTMAX[program]: "glow-int"} if program in SOFTMAX else {}
    bundle = compiled(text, numerics=numerics, layer_numerics=by_layer)
    with np.load(get_weights_path(text)) as file:
        inputs = {t.name: file[f"input/{t.name}"] for t in bundle.metadata.inputs}
    return Shell(Debugger(bundle, inputs), lambda path: pytest.fail(f"nobody reads {path}"))


@pytest.mark.parametrize(
    ("program", "numerics", "channels", "form"),
    [
        (CHANNELWISE, "glow-int", 32, "(x >> "),
        pytest.param(CHANNELWISE, "glow-float", 32, "x * ", marks=pytest.mark.slow),
        ("minires/i8_asym_b32/cpumax", "float-qnnpack", 1, "x * "),
        pytest.param("minires/i8_asym_b32/cpu", "float-onednn", 1, "x * ", marks=pytest.mark.slow),
        ("lenet/i8_asym_b32/cpuold", "q31", 1, "/ 2^31"),
        ("minires/i16_pow2_b16/nmp", "glow-int", 1, "x * "),
    ],
)
def test_integers_of_compiled_programs_match_their_scales(
    shared: Path, program: str, numerics: str, channels: int, form: str
) -> None:
    shell = open_program(shared, program, numerics)
    found = shell.execute("integers")
    assert found.data["wrong"] == 0, found.text
    assert form in found.text
    assert max(len(stage["channels"]) for stage in found.data["stages"]) == channels
    told = {stage["layer"] for stage in found.data["stages"]}
    scaled = {
        layer.name
        for layer in shell.debugger.layers
        if layer.placement == "device" and layer.numerics and layer.op != "splat"
    }
    assert told == scaled


def test_a_changed_channel_is_found_and_corrected(shared: Path) -> None:
    shell = open_program(shared, CHANNELWISE, "glow-int")
    shell.execute(f"change {GROUPED} out_post 3 channel 17")
    (wrong,) = [
        (stage["stage"], one["channel"])
        for stage in shell.execute(f"integers {GROUPED}").data["stages"]
        for one in stage["channels"]
        if one["found"] != [one["expected"]]
    ]
    assert wrong == ("out", 17)
    told = shell.execute(f"integers {GROUPED}")
    hint = told.lines[-1].split("`")[1]
    assert hint.startswith(f"change {GROUPED} out_post ")
    shell.execute(hint)
    assert shell.execute(f"integers {GROUPED}").data["wrong"] == 0
    assert len(shell.execute(f"integers {GROUPED} all").lines) > 32


def test_a_missing_channel_is_an_error(shared: Path, shell: Shell) -> None:
    with pytest.raises(UserError, match="one value for all channels"):
        shell.execute("change conv1 out_post 3 channel 1")
    with pytest.raises(UserError, match="0 to 15"):
        shell.execute("change conv1 bias 16 1")
    with pytest.raises(UserError, match="0 to 31"):
        open_program(shared, CHANNELWISE, "glow-int").execute(
            f"change {GROUPED} out_post 3 channel 99"
        )


@pytest.mark.parametrize("channel", [0, 5, 9])
def test_a_bias_of_a_layer_divided_by_channels_is_changed(shell: Shell, channel: int) -> None:
    shell.execute("until end")
    before = shell.debugger.layer_outputs[5].copy()
    shell.execute(f"change fc bias {channel} 2000000")
    shell.execute("until end")
    apart = np.flatnonzero(shell.debugger.layer_outputs[5] != before)
    assert apart.tolist() == [channel]


def test_a_float64_factor_has_two_words(shared: Path) -> None:
    shell = open_program(shared, "lenet/i8_asym_b32/cpumax", "q31")
    name = "relu3_max__3"
    (layer,) = (one for one in shell.debugger.layers if one.name == name)
    facts = {one.name: one for one in explain_layers(shell.debugger.bundle.module())}[
        layer.fused[0]
    ]
    target, source, weights = (float(np.float32(one.scale)) for one in facts.operands[:3])
    (stage,) = shell.execute(f"integers {name}").data["stages"]
    assert stage["kind"] == "float64"
    assert stage["channels"][0]["real"] == source * weights / target
    for word in ("bias_mul", "out_mul"):  # the lower and the upper bits
        shell.execute(f"change {name} {word} 5")
        found = shell.execute(f"integers {name}")
        assert found.data["wrong"] == 1
        shell.execute(found.lines[-1].split("`")[1])
        assert shell.execute(f"integers {name}").data["wrong"] == 0
