"""Test the kinds of programs that a device accepts."""

from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
SEVEN = {"data": np.load(DIGITS / "images" / "7.npy")}


@pytest.fixture(scope="module")
def compiled_digits():
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")


def test_a_compiled_program_runs_like_its_file(compiled_digits, tmp_path):
    nmpsim.save(compiled_digits, tmp_path / "net.bin")
    bundle = nmpsim.load(tmp_path / "net.bin")
    assert nmpsim.get_device(compiled_digits) == nmpsim.get_device(bundle)
    device = nmpsim.Device(nmpsim.get_device(compiled_digits))
    found, expected = device.run(compiled_digits, SEVEN), device.run(bundle, SEVEN)
    assert found.cycles == expected.cycles == 4357
    assert np.array_equal(found.outputs["prob__1"], expected.outputs["prob__1"])
    assert compiled_digits.bundle is compiled_digits.bundle  # so that it is loaded once


@pytest.mark.parametrize("program", ["net.bin", Path("net.bin"), None, b"\x7fELF", 5])
def test_other_objects_are_refused_by_type(program):
    for use in (nmpsim.get_device, lambda it: nmpsim.Device().run(it, SEVEN)):
        with pytest.raises(nmpsim.UserError) as caught:
            use(program)
        (error,) = caught.value.diagnostics
        assert error.code == "ARG001"
        assert type(program).__name__ in str(error.found)
        assert "nmpsim.load" in str(error.hint)


def test_a_file_name_is_refused_as_device():
    files = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    for use in (nmpsim.Device, lambda given: nmpsim.compile(*files, device=given)):
        with pytest.raises(nmpsim.UserError) as caught:
            use("board.toml")
        (error,) = caught.value.diagnostics
        assert error.code == "ARG001"
        assert "board.toml" in str(error.found)
        assert "nmpsim.load_device" in str(error.hint)


def test_programs_devices_and_reports_have_short_reprs(compiled_digits):
    device = nmpsim.Device(threads=1)
    report = device.run(compiled_digits, SEVEN)
    assert repr(device) == "<Device nmp: 32 cores, compiled engine, 1 thread>"
    assert repr(compiled_digits.bundle).startswith("<Bundle main: 8 layers, ")
    assert repr(compiled_digits) == f"<Compiled {repr(compiled_digits.bundle)[1:-1]}>"
    assert (
        max(len(repr(one)) for one in (device, compiled_digits, compiled_digits.bundle, report))
        < 200
    )


def test_a_single_input_needs_no_name(compiled_digits):
    device = nmpsim.Device()
    found, expected = device.run(compiled_digits, SEVEN["data"]), device.run(compiled_digits, SEVEN)
    assert np.array_equal(found.outputs["prob__1"], expected.outputs["prob__1"])


def test_a_bundle_without_device_is_an_error(compiled_digits):
    bundle = compiled_digits.bundle
    bundle = attrs.evolve(bundle, metadata=attrs.evolve(bundle.metadata, device={}))
    for use in (nmpsim.get_device, lambda it: nmpsim.Device().run(it, SEVEN)):
        with pytest.raises(nmpsim.UserError) as caught:
            use(bundle)
        (error,) = caught.value.diagnostics
        assert error.code == "BUN004"
        assert "does not contain all settings of the device" in error.message
        assert error.found == "device settings without cores_count and scratchpad_bytes"
