"""A network with operations of the host between those of the device, through every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import nmpsim
from nmpsim.cli.app import app

F = np.float32
TEXT = """\
function net
declare {
  %w = WeightVar float<4 x 3 x 3 x 2> const // size: 288
  %b = WeightVar float<4> const // size: 16
  %s = WeightVar float<4> const // size: 16
  %idx = WeightVar index64<2> const // size: 16
  %data = WeightVar float<1 x 6 x 6 x 2> mutable // size: 288
  %out = WeightVar float<1 x 2> mutable // size: 8
  %place = WeightVar index64<1 x 2> mutable // size: 16

  ; size = 648 bytes
}

code {
  0 %c_res = allocactivation  { Ty: float<1 x 6 x 6 x 4>} // size: 576
  1 %c = convolution @out %c_res, @in %data, @in %w, @in %b { Kernels: [3, 3], Strides: [1, 1], \
Pads: [1, 1, 1, 1], Group: 1, Dilation: [1, 1], Layout: NHWC, FusedActivation: NONE, \
FusedActivationArgs: []}
  2 %bn_res = allocactivation  { Ty: float<1 x 6 x 6 x 4>} // size: 576
  3 %bn = batchnormalization @out %bn_res, @in %c_res, @in %s, @in %b, @in %b, @in %s \
{ ChannelIdx: 3, Epsilon: 1.000000e-05, Momentum: 9.000000e-01}
  4 %rz_res = allocactivation  { Ty: float<1 x 12 x 12 x 4>} // size: 2304
  5 %rz = resizebilinear @out %rz_res, @in %bn_res \
{ Scale: [1.000000e+00, 2.000000e+00, 2.000000e+00, 1.000000e+00]}
  6 %g_res = allocactivation  { Ty: float<1 x 12 x 12 x 2>} // size: 1152
  7 %g = gather @out %g_res, @in %rz_res, @in %idx { BatchDims: 3}
  8 %p_res = allocactivation  { Ty: float<1 x 1 x 1 x 2>} // size: 8
  9 %p = avgpool @out %p_res, @in %g_res { Kernels: [12, 12], Strides: [1, 1], \
Pads: [0, 0, 0, 0], Layout: 0, CountIncludePads: 0}
  10 %v = tensorview @in %p_res { Ty: float<1 x 2>, Offsets: [0, 0, 0, 0]}
  11 %f_res = allocactivation  { Ty: float<1 x 2>} // size: 8
  12 %f = elementexp @out %f_res, @in %v
  13 %t_scratch = allocactivation  { Ty: i8[S:0.000000000 O:0][0.000,0.000]<32>} // size: 32
  14 %t = topk @out %out, @out %place, @in %f_res, @out %t_scratch { K: 2}
  15 %dealloc_t = deallocactivation @out %t_scratch // size: 32
}
"""


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    words = [str(folder / a[1:]) if a.startswith("@") else a for a in arguments]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a network, its data, its quantized form and both compiled."""
    at = tmp_path_factory.mktemp("net")
    rng = np.random.default_rng(0)
    (at / "net.lir.txt").write_text(TEXT)
    weights: dict[str, Any] = {
        "w": rng.normal(size=(4, 3, 3, 2)).astype(F),
        "b": rng.normal(size=4).astype(F),
        "s": np.abs(rng.normal(size=4)).astype(F) + F(0.5),
        "idx": np.array([3, 1]),
    }
    np.savez(at / "w.npz", **weights)
    np.save(at / "x.npy", rng.normal(size=(1, 6, 6, 2)).astype(F))
    np.savez(at / "cal.npz", data=rng.normal(size=(8, 6, 6, 2)).astype(F))
    run(
        at, "quantize", "@net.lir.txt", "--weights", "@w.npz", "--calibration", "@cal.npz",
        "-o", "@q.lir.txt",
    )  # fmt: skip
    run(at, "compile", "@q.lir.txt", "--weights", "@q.npz", "-o", "@q.bin")
    run(at, "compile", "@net.lir.txt", "--weights", "@w.npz", "-o", "@f.bin")
    return at


def report(folder: Path, bundle: str, *more: str) -> Any:
    words = ("run", bundle, "--input", "@x.npy", "--format", "json", "--engine", "reference")
    return json.loads(run(folder, *words, *more))


def test_quantized_and_float_agree(folder: Path) -> None:
    quantized, real = (report(folder, name) for name in ("@q.bin", "@f.bin"))
    assert [layer["placement"] for layer in quantized["layers"]].count("device") == 2
    assert {layer["placement"] for layer in real["layers"]} == {"host"}
    outputs = []
    for name in ("q.bin", "f.bin"):
        bundle = nmpsim.load(folder / name)
        device = nmpsim.Device(nmpsim.get_device(bundle), engine="reference")
        outputs.append(device.run(bundle, {"data": np.load(folder / "x.npy")}).outputs)
    # Two Int8 layers lie before the exponential, so its argument is compared.
    np.testing.assert_allclose(*(np.log(each["out"]) for each in outputs), atol=0.2)
    assert outputs[0]["place"].tolist() == outputs[1]["place"].tolist()


def test_shadow_shows_errors_of_each_layer(folder: Path) -> None:
    shadowed = report(folder, "@q.bin", "--shadow")
    rows = {row["name"]: row for row in shadowed["shadow"]["layers"]}
    assert {"bn", "rz", "g", "f", "t"} <= set(rows)


def test_lint_ignores_workspaces(folder: Path) -> None:
    text = run(folder, "lint", "@q.lir.txt", "--weights", "@q.npz")
    assert "float-islands" in text
    assert "t_scratch" not in text
    assert "t_res" not in text


def test_the_debugger_steps_through(folder: Path) -> None:
    script = ["-c", "continue", "-c", "why t 0 1", "-c", "why bn 0 1 1 1", "-c", "back"]
    text = run(folder, "debug", "@q.bin", "--input", "@x.npy", *script)
    assert "(topk, host)" in text
    assert "(batchnormalization, host)" in text


def test_inspect_lists_host_layers(folder: Path) -> None:
    for command in ("inspect", "explain"):
        text = run(folder, command, "@q.bin")
        assert "topk" in text
    assert "the device has no unit for topk" in run(folder, "inspect", "@q.bin")


def test_quantize_refuses_what_changes_a_tensor_in_place(tmp_path: Path) -> None:
    text = (
        "function net\n"
        "declare {\n"
        "  %data = WeightVar float<4 x 2> mutable // size: 32\n"
        "  %i = WeightVar index64<1 x 1> mutable // size: 8\n"
        "  %s = WeightVar float<1 x 2> mutable // size: 8\n"
        "\n"
        "  ; size = 48 bytes\n"
        "}\n"
        "\n"
        "code {\n"
        "  0 %put = scatterdata @inout %data, @in %i, @in %s { Cumulative: 0}\n"
        "}\n"
    )
    (tmp_path / "net.lir.txt").write_text(text)
    np.savez(tmp_path / "w.npz")
    np.savez(tmp_path / "cal.npz", data=np.zeros((2, 4, 2), F))
    words = ["quantize", "net.lir.txt", "--weights", "w.npz", "--calibration", "cal.npz"]
    words = [str(tmp_path / w) if "." in w else w for w in words]
    result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "q.lir.txt")])
    assert result.exit_code == 2
    assert "QUANT001" in result.stderr
    assert "scatterdata" in result.stderr
