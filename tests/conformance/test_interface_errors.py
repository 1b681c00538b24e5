"""Test errors for wrong inputs, wrong devices, invalid text and missing weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from corpus import compile_image
from recorded_programs import Recorded, Recording

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.diagnostics import Diagnostic, UserError

PROGRAM = Recorded("lir/lenet/i8_pow2_b8/cpumax.lir.txt")
CONFIG = attrs.evolve(nmpsim.default_device(), cores_count=4)
Array = np.ndarray[Any, Any]


@pytest.fixture
def bundle(shared: Path, tmp_path: Path) -> Bundle:
    (tmp_path / "net.bin").write_bytes(compile_image(PROGRAM.text, device=CONFIG))
    return nmpsim.load(tmp_path / "net.bin")


@cache
def image() -> Array:
    (values,) = Recording(PROGRAM).inputs().values()
    return values


def find_diagnostics(bundle: Bundle, inputs: dict[str, Any]) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as caught:
        nmpsim.Device(CONFIG).run(bundle, inputs)
    return caught.value.diagnostics


def test_a_missing_input_is_an_error(bundle: Bundle) -> None:
    (found,) = find_diagnostics(bundle, {})
    assert found.code == "INPUT001"
    assert found.expected == "float of shape 1 x 1 x 28 x 28"


def test_an_input_of_another_name_is_an_error(bundle: Bundle) -> None:
    unknown, missing = find_diagnostics(bundle, {"dat": image()})
    assert unknown.code == missing.code == "INPUT001"
    assert unknown.hint == "Did you mean 'data'?"


def test_an_input_of_another_shape_is_an_error(bundle: Bundle) -> None:
    (found,) = find_diagnostics(bundle, {"data": image()[0]})
    assert found.code == "INPUT002"
    assert (found.found, found.expected) == ("1 x 28 x 28", "1 x 1 x 28 x 28")
    assert found.hint == "Reshape the array: it has the right number of elements."
    (found,) = find_diagnostics(bundle, {"data": np.zeros((1, 1, 28, 27), np.float32)})
    assert found.hint is None


@pytest.mark.parametrize("dtype", ["complex64", "bool", "datetime64[s]", "U4", "O"])
def test_an_input_of_another_type_is_an_error(bundle: Bundle, dtype: str) -> None:
    (found,) = find_diagnostics(bundle, {"data": np.zeros((1, 1, 28, 28), dtype)})
    assert found.code == "INPUT002"


def test_other_float_types_are_accepted(bundle: Bundle) -> None:
    device = nmpsim.Device(CONFIG)
    expected = device.run(bundle, {"data": image()}).outputs
    for values in (image().astype(np.float64), image().tolist()):
        outputs = device.run(bundle, {"data": values}).outputs
        assert all((outputs[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize(("setting", "value"), [("cores_count", 8), ("scratchpad_bytes", 65536)])
def test_another_device_is_an_error(bundle: Bundle, setting: str, value: int) -> None:
    other = nmpsim.Device(attrs.evolve(CONFIG, **{setting: value}))
    with pytest.raises(UserError) as caught:
        other.run(bundle, {"data": image()})
    (found,) = caught.value.diagnostics
    assert found.code == "BUN004"
    assert found.place is not None
    assert found.place.file == bundle.path
    assert str(value) in f"{found.found} {found.expected}"


def compile_text(text: str, folder: Path, **options: Any) -> tuple[Diagnostic, ...]:
    path = folder / "net.lir"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        nmpsim.compile(path, **{"weights": PROGRAM.beside("npz"), "device": CONFIG, **options})
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        (" = convolution ", " = convolutoin ", "LIR006"),
        ("Strides: [1, 1]", "Strydes: [1, 1]", "LIR008"),
        ("@in %data", "@in %dta", "LIR003"),
        ("Kernels: [5, 5]", "Kernels: [5, 4]", "LIR009"),
        ("function ", "funktion ", "LIR001"),
    ],
)
def test_a_mistake_in_the_text_is_an_error(
    right: str, wrong: str, code: str, shared: Path, tmp_path: Path
) -> None:
    text = PROGRAM.text.read_text()
    assert right in text
    found = compile_text(text.replace(right, wrong, 1), tmp_path)
    line = text[: text.index(right)].count("\n") + 1
    assert found[0].code == code
    assert found[0].place is not None
    assert found[0].place.file == str(tmp_path / "net.lir")
    assert found[0].place.line == line


def test_missing_weights_are_an_error(shared: Path, tmp_path: Path) -> None:
    text = PROGRAM.text.read_text()
    (found,) = compile_text(text, tmp_path, weights=None)
    assert found.code == "CONST002"
    assert f"{text.count(' const // size')} constants" in found.message
    np.savez(tmp_path / "some.npz", fc1_bias=np.zeros(1, np.float64))
    assert {f.code for f in compile_text(text, tmp_path, weights=tmp_path / "some.npz")} <= {
        "CONST002",
        "CONST003",
    }


def test_missing_files_are_an_error(shared: Path, tmp_path: Path) -> None:
    for options in ({"weights": tmp_path / "no.npz"}, {"tensors": tmp_path / "no.json"}):
        (found,) = compile_text(PROGRAM.text.read_text(), tmp_path, **options)
        assert found.code == "FILE001"
    for call in (nmpsim.compile, nmpsim.load):
        with pytest.raises(UserError) as caught:
            call(tmp_path / "no.lir")
        assert caught.value.diagnostics[0].code == "FILE001"


def test_a_text_is_refused_as_bundle(shared: Path) -> None:
    with pytest.raises(UserError) as caught:
        nmpsim.load(PROGRAM.text)
    assert caught.value.diagnostics[0].code == "BUN001"


def test_an_unknown_profile_is_an_error(shared: Path, tmp_path: Path) -> None:
    (found,) = compile_text(PROGRAM.text.read_text(), tmp_path, numerics="exact")
    assert found.code == "COMP001"


def test_a_refused_input_leaves_the_device_usable(bundle: Bundle) -> None:
    device = nmpsim.Device(CONFIG)
    first = device.run(bundle, {"data": image()})
    with pytest.raises(UserError):
        device.run(bundle, {"data": image()[..., :-1]})
    assert device.run(bundle, {"data": image()}).cycles == first.cycles


def test_infinities_saturate_and_nan_is_refused(bundle: Bundle) -> None:
    """As Glow quantizes them; on NaN it is undefined, so it would be a guess."""
    device = nmpsim.Device(CONFIG)
    values = np.array(image())
    values[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    with pytest.raises(UserError) as error:
        device.run(bundle, {"data": values})
    assert [d.code for d in error.value.diagnostics] == ["INPUT002"]
    values[0, 0, 0, 0] = 0.0
    held = np.array(values)
    held[0, 0, 0, 1:3] = 1e9, -1e9
    first, second = (device.run(bundle, {"data": v}).outputs for v in (values, held))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
