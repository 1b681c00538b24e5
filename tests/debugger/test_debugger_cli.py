"""``nmpsim debug`` as a process: scripts, exit codes, core files, records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compile_image

from nmpsim.bundle import Bundle
from nmpsim.cli.app import app

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
SEVEN = str(DIGITS / "images" / "7.npy")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("a folder") / "digits.bin"
    path.write_bytes(compile_image(DIGITS / "digits.lir.txt"))
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(list(arguments))
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_a_script_with_windows_line_ends(run: Any, program: str, tmp_path: Path) -> None:
    script = tmp_path / "s c r i p t.dbg"
    script.write_bytes("\ufeff# a comment\r\n\r\nstep 2\r\nwatch data\r\nwhere\r\n".encode())
    code, out, _ = run("debug", program, "--input", SEVEN, "--script", str(script))
    assert code == 0
    assert "> step 2" in out
    assert "2 of 8 layers done" in out
    assert out.endswith("watchpoint 1 was never hit: write of data\n")


def test_scripts_end_with_exit_codes_and_places(run: Any, program: str) -> None:
    given = ("debug", program, "--input", SEVEN)
    assert run(*given, "-c", "until end", "-c", "expect cycles < 6000")[0] == 0
    assert run(*given, "-c", "until end", "-c", "expect cycles < 5")[0] == 1
    code, _, err = run(*given, "-c", "where", "-c", "layer nothing")
    assert code == 2
    assert "--command:2: error[LAYER001]" in err
    assert run("debug", "missing.bin", "-c", "where")[0] == 2
    assert run(*given, "--script", "missing.dbg")[0] == 2


def test_the_json_output_is_one_document(run: Any, program: str) -> None:
    code, out, _ = run(
        "debug", program, "--input", SEVEN, "--format", "json", "-c", "step", "-c", "layers"
    )
    told = json.loads(out)
    assert code == 0
    assert told["schema"] == "nmpsim-debug-1"
    assert [command["command"] for command in told["commands"]] == ["step", "layers"]
    assert told["commands"][1]["data"]["layers"][0]["state"] == "done"


def test_a_session_can_be_recorded_and_replayed(run: Any, program: str, tmp_path: Path) -> None:
    record = tmp_path / "session.dbg"
    given = ("debug", program, "--input", SEVEN)
    first = run(*given, "--record", str(record), "-c", "step tensor 3", "-c", "where")
    again = run(*given, "--script", str(record))
    assert again == first


def test_commands_come_from_standard_input(
    run: Any, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("step\nquit\nstep\n"))
    code, out, _ = run("debug", program, "--input", SEVEN)
    assert code == 0
    assert out.count("> step") == 1


def test_a_core_file_opens_where_the_run_stopped(run: Any, program: str, tmp_path: Path) -> None:
    device, core, again = tmp_path / "d.toml", tmp_path / "x.core", tmp_path / "y.core"
    device.write_text("[limits]\ncycles = 1000\n")
    code, _, err = run(
        "run", program, "--input", SEVEN, "--device", str(device), "--core-on-trap", str(core)
    )
    assert code == 1
    assert str(core) in err
    code, out, _ = run(
        "debug", str(core), "-c", "where", "-c", "back layer", "-c", f"core {again}",
        "-c", "expect trapped == 0",
    )  # fmt: skip
    assert code == 0
    assert "trap: the run took more than 1000 cycles" in out
    _, out, _ = run("debug", str(again), "-c", "where", "-c", "continue")
    assert "layer 3 conv2__2" in out
    assert "> continue\ntrap: the run took more than 1000 cycles" in out


def test_a_run_without_a_trap_leaves_no_core_file(run: Any, program: str, tmp_path: Path) -> None:
    core = tmp_path / "x.core"
    assert run("run", program, "--input", SEVEN, "--core-on-trap", str(core))[0] == 0
    assert not core.exists()


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"schema": "nmpsim-core-2"}',
        b'{"schema": "nmpsim-core-2", "position": -1, "engine": "compiled", "device": {}}',
        b'{"schema": "nmpsim-core-2", "position": null, "engine": "rm -rf", "device": {}}',
        b'{"schema": "nmpsim-core-2", "position": null, "engine": "compiled", "device": 5}',
        b"[" * 10_000,
    ],
)
def test_broken_core_files_are_refused(
    run: Any, digits: Bundle, tmp_path: Path, about: bytes
) -> None:
    core = tmp_path / "broken.core"
    np.savez(
        core,
        about=np.frombuffer(about, np.uint8),
        bundle=np.zeros(9, np.uint8),
        edits=np.frombuffer(b"[]", np.uint8),
    )
    code, _, err = run("debug", str(core.with_name("broken.core.npz")), "-c", "where")
    assert code == 2
    assert "DEBUG003" in err


@pytest.mark.parametrize(
    "edits",
    [
        "3",
        "[3]",
        "[{}]",
        '[{"position": 0, "pieces": [[1, "zz"]], "what": "", "scales": {}}]',
        '[{"position": -1, "pieces": [], "what": "", "scales": {}}]',
        '[{"position": 0, "pieces": [[true, "00"]], "what": "", "scales": {}}]',
        '[{"position": 0, "pieces": [], "what": "", "scales": {"x": NaN}}]',
        '[{"position": 0, "pieces": [], "what": "", "scales": []}]',
        '[{"position": 0, "pieces": [[1, "00"]], "what": "", "scales": {}}]',
    ],
)
def test_impossible_edits_are_refused(run: Any, program: str, tmp_path: Path, edits: str) -> None:
    core = tmp_path / "x.npz"
    assert run("debug", program, "--input", SEVEN, "-c", f"core {core}")[0] == 0
    with np.load(core) as file:
        arrays = dict(file) | {"edits": np.frombuffer(edits.encode(), np.uint8)}
    np.savez(core, **arrays)
    code, _, err = run("debug", str(core), "-c", "where")
    assert code == 2
    assert "DEBUG003" in err or "not in memory that can be changed" in err
