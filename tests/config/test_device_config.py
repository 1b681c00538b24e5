"""Test accepted device files, and the errors of refused ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmpsim.config import SETTINGS, default_device, load_device, make_device_config
from nmpsim.diagnostics import UserError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my device.toml"
    path.write_bytes(text.encode())
    return path


def codes(error: pytest.ExceptionInfo[UserError]) -> list[str]:
    return [d.code for d in error.value.diagnostics]


def test_the_default_is_the_nmp() -> None:
    device = default_device()

    assert (device.cores_count, device.scratchpad_bytes, device.dram_bytes_per_cycle) == (
        32,
        128 * 1024,
        16,
    )
    assert device.macs_per_cycle == 32 * 64
    assert set(device.sources) == set(SETTINGS)
    assert device.sources["cores_count"] == "published"


def test_a_file_changes_only_named_settings(tmp_path: Path) -> None:
    text = (
        'name = "small"\r\n[cores]\r\ncount = 4\r\n'
        '[dram]\r\nlatency_cycles = { value = 55, source = "measured", note = "on a board" }\r\n'
    )
    device = load_device(written(tmp_path, text))

    assert (device.name, device.cores_count, device.dram_latency_cycles) == ("small", 4, 55)
    assert (device.sources["cores_count"], device.sources["dram_latency_cycles"]) == (
        "given",
        "measured",
    )
    assert device.mac_out_lanes == default_device().mac_out_lanes


def test_all_findings_are_reported_together(tmp_path: Path) -> None:
    text = (
        "[cores]\ncuont = 4\ncount = 65\n"
        "[mac]\nin_lanes = true\n"
        "[dram]\nburst_bytes = 48\nrow_bytes = '2k'\n"
        "[queues]\ndepth = { value = 4, source = 'guessed' }\n"
    )
    with pytest.raises(UserError) as error:
        load_device(written(tmp_path, text))

    assert sorted(codes(error)) == ["DEV002", "DEV002", "DEV002", "DEV002", "DEV003", "DEV003"]
    shown = str(error.value)
    assert "my device.toml" in shown
    assert "Did you mean '[cores] count'?" in shown
    assert "a power of two" in shown


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cores_count = 3", "unknown key cores_count", "Did you mean '[cores] count'?"),
        ("[dram_row]\nbytes = 4096", "unknown section [dram_row]", "[dram] row_bytes'?"),
        ("[vectr]\nlanes = 4", "unknown section [vectr]", "Did you mean '[vector]'?"),
        ("nam = 'x'", "unknown key nam", "Did you mean 'name'?"),
        ("whatever = 1", "unknown key whatever", "`nmpsim device`"),
        ("cores = 3", "cores has the wrong type", "a table: [cores]"),
        ("[[cores]]\ncount = 3", "cores has the wrong type", "a table: [cores]"),
        ("[name]\nx = 1", "name has the wrong type", "a string"),
        (
            "[cores]\ncount = { valeu = 3 }",
            "[cores] count has no key 'valeu'",
            "Did you mean 'value'?",
        ),
        ("[cores]\ncount = { source = 'given' }", "[cores] count has no value", "{ value = "),
        (
            "[cores]\ncount = { value = 3, unit = 'x' }",
            "[cores] count has no key 'unit'",
            "value, source, note",
        ),
        (
            "[cores]\ncount = { value = 3, source = [1] }",
            "source of [cores] count is unknown",
            "published, measured",
        ),
    ],
)
def test_unknown_settings_are_refused(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        load_device(written(tmp_path, text))

    assert set(codes(error)) == {"DEV002"}
    assert message in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[dram]\nburst_bytes = 48", "Use 32 or 64."),
        ("[scratchpad]\nbytes = 5000", "Use 4992 or 5056."),
        ("[dram]\nburst_bytes = 512\nrow_bytes = 256", "Decrease [dram] burst_bytes"),
    ],
)
def test_out_of_range_settings_have_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        load_device(written(tmp_path, text))

    assert codes(error) == ["DEV003"]
    assert hint in str(error.value)


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    assert load_device(str(written(tmp_path, "[cores]\ncount = 2"))).cores_count == 2


def test_contradictory_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load_device(written(tmp_path, "[dram]\nburst_bytes = 512\nrow_bytes = 256\n"))

    assert codes(error) == ["DEV003"]


@pytest.mark.parametrize("text", ["[cores", "cores = \x00", "a = 1\na = 2", f"a = {5000 * '9'}"])
def test_invalid_toml_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError) as error:
        load_device(written(tmp_path, text))

    assert codes(error) == ["DEV001"]


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_an_unreadable_file_is_an_error(tmp_path: Path, what: str) -> None:
    path = tmp_path if what == "folder" else tmp_path / "nowhere.toml"
    with pytest.raises(UserError) as error:
        load_device(path)

    assert codes(error) == ["FILE001"]


def test_settings_survive_a_bundle() -> None:
    device = default_device()

    assert make_device_config(device.settings()) == device
    assert (
        make_device_config({**device.settings(), "cores_count": 8}).sources["cores_count"]
        == "given"
    )
    with pytest.raises(UserError):
        make_device_config({"cores_count": "many"})
