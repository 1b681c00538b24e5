"""Profiles, biases and elements as the command line has them: compile and inspect."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nmpsim.bundle import read_bundle
from nmpsim.compiler.numerics import PROFILES

LIR = """function net
declare {
  %w = WeightVar i8[S:0.031250000 O:0][-4.000,3.969]<4 x 3> const
  %b = WeightVar i8[S:0.001953125 O:0][-0.250,0.248]<3> const
  %x = WeightVar float<2 x 4> mutable
  %y = WeightVar float<2 x 3> mutable

  ; size = 71 bytes
}

code {
  0 %q = allocactivation  { Ty: i8[S:0.062500000 O:0][-8.000,7.938]<2 x 4> } // size: 8
  1 %quantize = quantize @out %q, @in %x
  2 %r = allocactivation  { Ty: i8[S:0.250000000 O:0][-32.000,31.750]<2 x 3> } // size: 6
  3 %fc1 = fullyconnected @out %r, @in %q, @in %w, @in %b
  4 %dealloc_q = deallocactivation @out %q // size: 8
  5 %relu1 = relu @out %r, @in %r
  6 %dequantize = dequantize @out %y, @in %r
  7 %dealloc_r = deallocactivation @out %r // size: 6
}
"""
FLOAT = """function net
declare {
  %w = WeightVar float<4 x 3> const
  %b = WeightVar float<3> const
  %x = WeightVar float<2 x 4> mutable
  %y = WeightVar float<2 x 3> mutable

  ; size = 116 bytes
}

code {
  0 %fc1 = fullyconnected @out %y, @in %x, @in %w, @in %b
}
"""


@pytest.fixture
def program(tmp_path):
    """Return arguments of compile for a folder with a space in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "net.lir").write_text(LIR)
    w = np.arange(12, dtype=np.int8).reshape(4, 3)
    np.savez(folder / "w.npz", w=w, b=np.array([-128, 5, 127], np.int8))
    return [folder / "net.lir", "--weights", folder / "w.npz", "-o", folder / "net.bin"]


def get_layer_profiles(program) -> dict[str, str]:
    return {layer.name: layer.numerics for layer in read_bundle(program[-1]).metadata.layers}


def test_the_default_profile_is_glow_int(nmpsim_cli, program):
    assert nmpsim_cli("compile", *program).exit_code == 0
    assert get_layer_profiles(program) == {
        "quantize": "glow-int",
        "relu1": "glow-int",
        "dequantize": "",
    }


@pytest.mark.parametrize("name", [n for n in PROFILES if n != "nmp"])
def test_each_profile_compiles(nmpsim_cli, program, name):
    assert nmpsim_cli("compile", *program, "--numerics", name).exit_code == 0
    assert get_layer_profiles(program)["relu1"] == name


def test_one_layer_can_have_another_profile(nmpsim_cli, program):
    choices = ("--numerics", "fc1=float", "--numerics", "glow-float")
    assert nmpsim_cli("compile", *program, *choices).exit_code == 0
    assert get_layer_profiles(program) == {
        "quantize": "glow-float",
        "relu1": "float",
        "dequantize": "",
    }
    text = nmpsim_cli("inspect", program[-1]).stdout
    assert "numerics     glow-float" in text
    (row,) = (line for line in text.splitlines() if " fc " in line)
    assert " float " in row


@pytest.mark.parametrize(
    ("choices", "code", "text"),
    [
        (["glow-double"], "COMP001", "glow-int, glow-float, nmp, q31, float"),
        (["fc1=glow-double"], "COMP001", "unknown numerics profile"),
        (["fc2=float"], "COMP001", "Did you mean 'fc1'?"),
        (["=float"], "ARG001", "--numerics has no layer before ="),
        (["float", "nmp"], "ARG001", "twice"),
        (["fc1=float", "fc1=nmp"], "ARG001", "twice"),
        (["nmp"], "COMP001", "--rescale-bias"),
        ([""], "COMP001", "unknown numerics profile"),
    ],
)
def test_impossible_profiles_are_refused(nmpsim_cli, program, choices, code, text):
    arguments = [part for choice in choices for part in ("--numerics", choice)]
    result = nmpsim_cli("compile", *program, *arguments)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert text in result.stderr
    assert not program[-1].exists()


def test_rescaled_biases_are_listed(nmpsim_cli, program):
    result = nmpsim_cli("compile", *program, "--numerics", "nmp", "--rescale-bias")
    assert result.exit_code == 0
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("fc1"))
    assert row.split() == [
        "fc1", "Int8", "0.00195312", "0.25", "0", "0", "of", "3", "0.00976562", "0.0390625",
    ]  # fmt: skip
    assert get_layer_profiles(program)["relu1"] == "nmp"
    module = read_bundle(program[-1]).module()
    assert module.constants["b"].tolist() == [-1, 0, 1]


def test_rescaled_biases_are_listed_as_json(nmpsim_cli, program):
    arguments = ("--numerics", "nmp", "--rescale-bias", "--format", "json")
    data = json.loads(nmpsim_cli("compile", *program, *arguments).stdout)
    assert data["schema"] == "nmpsim-compile-3"
    assert data["numerics"] == "nmp"
    assert data["digest"] == read_bundle(program[-1]).digest
    (report,) = data["rescaled_biases"]
    assert report == {
        "layer": "fc1", "number": 3, "bias": "b", "renamed": "b", "elem": "i8",
        "old_scale": 2.0**-9, "new_scale": 0.25, "new_offset": 0, "elements": 3, "saturated": 0,
        "largest_error": 5 * 2.0**-9, "largest_error_steps": 5 * 2.0**-7,
    }  # fmt: skip
    assert data["nothing_quantized"] is False


def test_saturation_of_biases_is_reported(nmpsim_cli, program, tmp_path):
    net = program[0]
    net.write_text(
        net.read_text().replace("[S:0.250000000 O:0][-32.000,31.750]", "[S:0.001953125 O:99][0,0]")
    )
    result = nmpsim_cli("compile", *program, "--rescale-bias")
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("fc1"))
    assert "1 of 3" in row


def test_inspect_shows_element_types(nmpsim_cli, program):
    nmpsim_cli("compile", *program)
    text = nmpsim_cli("inspect", program[-1]).stdout
    rows = {line.split("  ")[0]: line.split()[-5:] for line in text.splitlines()}
    assert rows["Int8"] == ["1", "1", "0", "24", "100.0"]
    assert rows["to or from float"] == ["2", "0", "2", "0", "0.0"]
    assert "NOTHING" not in text
    data = json.loads(nmpsim_cli("inspect", program[-1], "--format", "json").stdout)
    assert data["elements"][0] == {"kind": "i8", "device": 1, "host": 0, "macs": 24}
    assert data["nothing_quantized"] is False
    assert [layer["numerics"] for layer in data["layers"]] == ["glow-int", "glow-int", ""]


def test_a_float_program_gives_a_warning(nmpsim_cli, program):
    program[0].write_text(FLOAT)
    np.savez(program[2], w=np.ones((4, 3), np.float32), b=np.ones(3, np.float32))
    result = nmpsim_cli("compile", *program)
    assert result.exit_code == 0
    assert "warning: NOTHING IS QUANTIZED" in result.stderr
    text = nmpsim_cli("inspect", program[-1]).stdout
    assert "NOTHING IS QUANTIZED" in text
    (row,) = (line for line in text.splitlines() if line.startswith("float"))
    assert row.split() == ["float", "1", "0", "1", "24", "100.0"]
    data = json.loads(nmpsim_cli("inspect", program[-1], "--format", "json").stdout)
    assert data["nothing_quantized"] is True


def test_a_mixed_program_shows_reasons(nmpsim_cli, program):
    wide = LIR.replace("i8[", "i16[").replace("size = 71", "size = 86")
    for old, new in (("size: 8", "size: 16"), ("size: 6", "size: 12")):
        wide = wide.replace(old, new)
    program[0].write_text(wide)
    np.savez(program[2], w=np.ones((4, 3), np.int16), b=np.ones(3, np.int16))
    assert nmpsim_cli("compile", *program).exit_code == 0
    text = nmpsim_cli("inspect", program[-1]).stdout
    assert "Int16 layers of glow-int follow glow-float" in text
    assert get_layer_profiles(program)["relu1"] == "glow-float"
    assert "the device has no unit for dequantize" in text


def test_float_layers_are_reported(nmpsim_cli, program):
    lines = LIR.replace("size = 71", "size = 151").splitlines()
    at = lines.index("  %b = WeightVar i8[S:0.001953125 O:0][-0.250,0.248]<3> const")
    lines[at:at] = [
        "  %v = WeightVar float<3 x 3> const",
        "  %c = WeightVar float<3> const",
        "  %z = WeightVar float<2 x 3> mutable",
    ]
    lines[-1:] = ["  8 %fc2 = fullyconnected @out %z, @in %y, @in %v, @in %c", "}", ""]
    text = "\n".join(lines).replace("size = 151", f"size = {71 + 36 + 12 + 24}")
    program[0].write_text(text)
    values = {"w": np.ones((4, 3), np.int8), "b": np.ones(3, np.int8)}
    np.savez(program[2], **values, v=np.ones((3, 3), np.float32), c=np.ones(3, np.float32))
    assert nmpsim_cli("compile", *program).exit_code == 0
    shown = nmpsim_cli("inspect", program[-1]).stdout
    assert "42.9 % of the MACs are float" in shown
    assert "NOTHING" not in shown


LARGE_POOL = """function net
declare {
  %x = WeightVar i8[S:0.031250000 O:0][-4.000,3.969]<1 x 300 x 300 x 3> mutable
  %y = WeightVar i8[S:0.031250000 O:0][-4.000,3.969]<1 x 1 x 1 x 3> mutable

  ; size = 270003 bytes
}

code {
  0 %pool = avgpool @out %y, @in %x { Kernels: [300, 300], Strides: [1, 1], Pads: [0, 0, 0, 0], Layout: 0, CountIncludePads: 1}
}
"""  # noqa: E501


def test_a_pool_with_a_large_window_is_reported_and_runs(nmpsim_cli, program, tmp_path):
    program[0].write_text(LARGE_POOL)
    np.savez(program[2])
    done = nmpsim_cli("compile", *program)
    assert done.exit_code == 0
    reason = "the smallest tile needs 180,224 bytes, but a scratchpad has 131,072"
    assert f"note: pool (avgpool) runs on the host: {reason}" in " ".join(done.stderr.split())
    assert f"{reason}: 0 pool" in nmpsim_cli("inspect", program[-1]).stdout
    x = np.full((1, 300, 300, 3), 5, np.int8)
    x[..., 1] = np.where(np.arange(300) < 100, 10, 13)
    x[..., 2] = -77
    np.save(tmp_path / "x.npy", x)
    saved = tmp_path / "layers.npz"
    run = nmpsim_cli("run", program[-1], "--input", tmp_path / "x.npy", "--save-layers", saved)
    assert run.exit_code == 0
    (mean,) = np.load(saved).values()
    assert mean.reshape(-1).tolist() == [5, 12, -77]
