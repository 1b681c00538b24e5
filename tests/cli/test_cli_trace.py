"""``nmpsim run --trace`` and ``--dram-trace``."""

import gzip
import json
from pathlib import Path

import pytest
from corpus import compile_image

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"


@pytest.fixture(scope="module")
def net(tmp_path_factory):

    path = tmp_path_factory.mktemp("a net") / "digits.bin"
    path.write_bytes(compile_image(DIGITS / "digits.lir.txt"))
    return path


@pytest.fixture
def run(nmpsim_cli, net):
    def run(*options):
        return nmpsim_cli("run", net, "--input", DIGITS / "images" / "7.npy", *options)

    return run


def test_traces_are_written_with_the_report(run, tmp_path):
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    assert run("--trace", plain, "--dram-trace", tmp_path / "t.trc").exit_code == 0
    result = run("--trace", packed, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    trace = json.loads(plain.read_text())
    assert trace == json.loads(gzip.decompress(packed.read_bytes()))
    report = json.loads(result.stdout)
    assert trace["otherData"]["cycles"] == report["cycles"] - report["host"]["cycles"]
    first = (tmp_path / "t.trc").read_text().splitlines()[0].split()
    assert (int(first[0], 16) % 64, first[1], int(first[2])) == (0, "READ", 46)


def test_cores_and_layers_can_be_selected(run, tmp_path):
    path = tmp_path / "t.json"
    chosen = ("--trace-cores", "1", "--trace-layer", "conv1__2", "--trace-layer", "index:2")
    assert run("--trace", path, *chosen).exit_code == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {1, 2, 11}
    work = {e["args"]["layer"] for e in events if e["ph"] == "X" and e["pid"] != 1}
    assert work == {"conv1__2", "pool1__2"}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--trace-cores", "1"), "ARG001"),
        (("--trace", "T", "--trace-cores", "32"), "ARG001"),
        (("--trace", "T", "--trace-cores", "3-1"), "ARG001"),
        (("--trace", "T", "--trace-cores", "all"), "ARG001"),
        (("--trace", "T", "--trace-layer", "nothing"), "LAYER001"),
        (("--trace", "T", "--trace-limit", "0"), "ARG001"),
        (("--trace", "T", "--dram-trace", "T"), "ARG001"),
        (("--commit-log", "T", "--engine", "compiled"), "ARG001"),
        (("--check-pointers", "--engine", "compiled"), "ARG001"),
        (("--check-pointers",), "LINE001"),
        (("--allocator", "take,give"), "ARG001"),
        (("--trace", "missing/T"), "FILE002"),
    ],
)
def test_impossible_traces_are_refused(run, tmp_path, monkeypatch, options, code):
    monkeypatch.chdir(tmp_path)
    result = run(*options)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_commit_log_has_the_instructions_of_selected_cores(nmpsim_cli, tmp_path):
    source, net, log = tmp_path / "x.s", tmp_path / "x.bin", tmp_path / "x.log.gz"
    source.write_text("_start:\n    csrrs a0, mhartid, x0\n    ebreak\n")
    assert nmpsim_cli("asm", source, "-o", net).exit_code == 0
    options = ("--commit-log", log, "--trace-cores", "0,2", "--format", "json")
    result = nmpsim_cli("run", net, *options)
    assert (result.exit_code, json.loads(result.stdout)["engine"]) == (1, "reference")
    lines = gzip.decompress(log.read_bytes()).decode().splitlines()
    assert {line[:9] for line in lines} == {"core   0:", "core   2:"}
    assert sum(line.endswith("(0xf1402573) x10 0x00000002 # 1") for line in lines) == 1
    assert sum("exception trap_breakpoint" in line for line in lines) == 1


def test_a_trapped_run_has_a_trace(nmpsim_cli, tmp_path):
    source, net, trace = tmp_path / "x.s", tmp_path / "x.bin", tmp_path / "t.json"
    source.write_text("_start:\n    ebreak\n")
    assert nmpsim_cli("asm", source, "-o", net).exit_code == 0
    assert nmpsim_cli("run", net, "--trace", trace).exit_code == 1
    (instant,) = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "i"]
    assert instant["name"] == "trap"
    assert "breakpoint" in instant["args"]["message"]
