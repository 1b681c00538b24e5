"""The other commands within one process."""

import json
import re

import pytest

from nmpsim.bundle import parse_bundle, read_bundle
from nmpsim.cli.app import COMMANDS
from nmpsim.config import SETTINGS

ASSEMBLY = "# größe\r\n.output y, i8[S:0.5 O:3]<1 x 4>\r\n_start:\r\n    nmp.halt\r\n"


def test_help_and_version_are_printed(nmpsim_cli):
    result = nmpsim_cli("--help")
    assert result.exit_code == 0
    for command in ("compile", "run", "inspect", "disasm", "asm", "device"):
        assert f"\n  {command} " in result.stdout
        assert nmpsim_cli(command, "--help").exit_code == 0
    assert nmpsim_cli("--version").stdout.startswith("nmpsim ")


@pytest.mark.parametrize(
    ("command", "default"),
    [
        ("run", "the bundle's"),
        ("compile", "the NMP"),
        ("asm", "the NMP"),
    ],
)
def test_the_help_names_the_default_device(nmpsim_cli, command, default):
    assert f"Device file.  [default: {default}]" in nmpsim_cli(command, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_an_option_is_one_line(nmpsim_cli, command):
    _, *options = re.split(r"^  (?=-)", nmpsim_cli(command, "--help").stdout, flags=re.MULTILINE)
    for option in options:
        lines = [line for line in option.split("\n\n")[0].splitlines() if line.strip()]
        has_long_name = "  " not in lines[0]
        assert len(lines) == 1 + has_long_name, option


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("rnu",), "Did you mean 'run'?"),
        (("run",), "NET.bin"),
        (("run", "x.bin", "--frmat", "json"), "--frmat"),
        (("run", "x.bin", "--format", "xml"), "xml"),
        (("--nothing",), "--nothing"),
        (("asm", "x.s"), "'-o'"),
    ],
)
def test_usage_errors_have_exit_code_2(nmpsim_cli, arguments, expected):
    result = nmpsim_cli(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error[ARG001]: ")
    assert expected in result.stderr
    assert "--help`" in result.stderr


def test_no_arguments_show_the_help(nmpsim_cli):
    result = nmpsim_cli()
    assert result.exit_code == 2
    assert "Usage: nmpsim" in result.stderr


def test_compile_writes_a_bundle(fake, nmpsim_cli, tmp_path):
    fake.warnings = ("scales are as printed",)
    output = tmp_path / "a b.bin"
    result = nmpsim_cli(
        "compile", "net.lir", "--weights", "w.npz", "--numerics", "nmp", "--no-fuse", "-o", output
    )
    assert result.exit_code == 0
    assert result.stdout == ""
    warning, summary = result.stderr.splitlines()
    assert warning == "warning: scales are as printed"
    nbytes = f"{output.stat().st_size:,} bytes"
    assert summary == (
        f"wrote {output}: 1 layer on the device, 0 on the host, {nbytes}, for 32 cores"
    )
    call = fake.calls[0]
    assert (str(call["lir"]), str(call["files"][0]), call["files"][1]) == ("net.lir", "w.npz", None)
    assert (call["numerics"], call["fuse"], call["device"]) == ("nmp", False, None)


def test_compile_reports_errors(nmpsim_cli, tmp_path):
    result = nmpsim_cli("compile", tmp_path / "missing.lir", "-o", tmp_path / "x.bin")
    assert result.exit_code == 2
    assert "error[FILE001]" in result.stderr
    assert not (tmp_path / "x.bin").exists()


def test_inspect_lists_layers(nmpsim_cli, bundle):
    text = nmpsim_cli("inspect", bundle).stdout
    for part in (
        "1 on the device, 0 on the host",
        "1 Int8",
        "data: Int8 1x4, scale 0.5, offset 0",
        "mask: float 2x3",
        "nmpsim-bundle-4",
        " fc ",
        read_bundle(bundle).digest,
    ):
        assert part in text
    data = json.loads(nmpsim_cli("inspect", bundle, "--format", "json").stdout)
    assert data["inputs"][0] == {
        "name": "data", "elem": "i8", "shape": [1, 4], "scale": 0.5, "offset": 0,
    }  # fmt: skip
    assert data["placement"] == {"device": 1, "host": 0}
    assert data["bytes"]["code"] >= 4
    assert data["layers"][0]["op"] == "fullyconnected"


def test_assembly_survives_a_round_trip(nmpsim_cli, tmp_path):
    source, first, text, second = (tmp_path / n for n in ("a.s", "a.bin", "b.s", "b.bin"))
    source.write_bytes(ASSEMBLY.encode("utf-8-sig"))
    result = nmpsim_cli("asm", source, "-o", first)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"wrote {first}: ")
    assert "nmp.halt" in nmpsim_cli("disasm", first).stdout
    assert nmpsim_cli("disasm", first, "--data", "-o", text).exit_code == 0
    assert nmpsim_cli("asm", text, "-o", second).exit_code == 0
    assert second.read_bytes() == first.read_bytes()
    recorded = parse_bundle(first.read_bytes()).metadata.device
    assert recorded["cores_count"] == 32


@pytest.mark.parametrize(
    ("contents", "code"),
    [(b"_start: nmp.hlt", "ASM002"), (b"\xff\xfe", "ASM001"), (b"", "ASM002")],
)
def test_wrong_assembly_writes_nothing(nmpsim_cli, tmp_path, contents, code):
    (tmp_path / "a.s").write_bytes(contents)
    result = nmpsim_cli("asm", tmp_path / "a.s", "-o", tmp_path / "a.bin")
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert not (tmp_path / "a.bin").exists()


def test_many_errors_are_counted(nmpsim_cli, tmp_path):
    (tmp_path / "a.s").write_text("wrong\n" * 100)
    result = nmpsim_cli("asm", tmp_path / "a.s", "-o", tmp_path / "a.bin")
    assert result.stderr.count("error[") == 20
    assert "more errors" in result.stderr


def test_device_prints_settings(nmpsim_cli, tmp_path):
    text = nmpsim_cli("device").stdout
    assert "29 settings assumed" in text
    assert "*" not in text
    (tmp_path / "d.toml").write_text("name = 'mine'\n[dram]\nlatency_cycles = 80\n")
    text = nmpsim_cli("device", tmp_path / "d.toml").stdout
    assert "given *" in text
    assert "differs from the default device: 1 setting" in text
    data = json.loads(nmpsim_cli("device", tmp_path / "d.toml", "--format", "json").stdout)
    assert data["name"] == "mine"
    assert data["settings"]["dram_latency_cycles"] == {"value": 80, "source": "given"}
    assert tuple(data["settings"]) == tuple(SETTINGS)


@pytest.mark.parametrize("command", ["inspect", "disasm", "run"])
def test_an_invalid_bundle_is_refused(nmpsim_cli, tmp_path, command):
    (tmp_path / "x.bin").write_text("no bundle")
    for path, code in ((tmp_path / "x.bin", "BUN001"), (tmp_path, "FILE001")):
        result = nmpsim_cli(command, path)
        assert result.exit_code == 2
        assert f"error[{code}]" in result.stderr
