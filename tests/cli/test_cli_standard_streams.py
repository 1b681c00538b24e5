"""``-`` is standard input for what is read and standard output for what is written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from nmpsim.bundle import parse_bundle
from nmpsim.cli.app import app
from nmpsim.cli.stdin import copy_stream_to_file
from nmpsim.diagnostics import UserError

SOURCE = ".input data, i8[S:1 O:0]<1 x 4>\n.output prob, float<1 x 2>\n_start: nmp.halt\n"


def invoke(*words: object, given: bytes | str = b""):
    return CliRunner().invoke(app, [str(word) for word in words], input=given)


def npy(tmp_path: Path) -> bytes:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.int8))
    return (tmp_path / "x.npy").read_bytes()


def test_a_program_is_read_and_a_bundle_written() -> None:
    result = invoke("asm", "-", "-o", "-", given=SOURCE)
    assert result.exit_code == 0, result.stderr
    bundle = parse_bundle(result.stdout_bytes)
    assert [one.name for one in bundle.metadata.inputs] == ["data"]
    assert not Path("-").exists()
    assert "nmp.halt" in invoke("disasm", "-", "-o", "-", given=result.stdout_bytes).stdout


@pytest.mark.parametrize("argument", ["-", "data=-", "input/data=-"])
def test_an_input_is_read(fake, one_input, tmp_path: Path, argument: str) -> None:
    result = invoke("run", one_input, "--input", argument, given=npy(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert fake.calls[-1]["inputs"]["data"].shape == (1, 4)


def test_raw_values_are_read(fake, one_input) -> None:
    assert invoke("run", one_input, "--input", "-", given=b"\x01\x02\x03\x04").exit_code == 0
    assert fake.calls[-1]["inputs"]["data"].tolist() == [[1, 2, 3, 4]]


def test_nothing_is_left_behind(fake, one_input, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert invoke("run", one_input, "--input", "-", given=npy(tmp_path)).exit_code == 0
    assert list(folder.iterdir()) == []


def test_an_endless_pipe_is_refused(fake, one_input, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("nmpsim.cli.stdin.MAX_BYTES", 3 << 20)
    result = invoke("run", one_input, "--input", "-", given=b"\0" * (4 << 20))
    assert result.exit_code == 2
    assert "error[FILE001]: the data is too large" in result.stderr
    assert "standard input" in result.stderr
    assert list(folder.iterdir()) == []


def test_an_inherited_pipe_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(writing, b"abc"), os.close(writing)))
    thread.start()
    with click.Context(click.Command("x")) as context:
        path = Path(copy_stream_to_file(f"/dev/fd/{reading}", context))
        assert path.read_bytes() == b"abc"
        with pytest.raises(UserError, match="passed to two options"):
            copy_stream_to_file(f"/dev/fd/{reading}", context)
    assert not path.exists()
    thread.join()
    os.close(reading)


def test_a_named_pipe_is_read(fake, one_input, tmp_path: Path) -> None:
    pipe, contents = tmp_path / "pipe", npy(tmp_path)
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(contents))
    thread.start()
    result = invoke("run", one_input, "--input", pipe)
    thread.join()
    assert result.exit_code == 0, result.stderr


def test_a_file_called_dash_has_a_path(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text(SOURCE)
    assert invoke("asm", "./-", "-o", "net.bin").exit_code == 0


def test_two_things_on_standard_output_are_refused(fake, one_input, tmp_path: Path) -> None:
    npy(tmp_path)
    words = ("run", one_input, "--input", tmp_path / "x.npy", "--save-outputs", "-")
    result = invoke(*words)
    assert (result.exit_code, "cannot both be written to standard output" in result.stderr) == (
        2,
        True,
    )
    result = invoke(*words, "-o", tmp_path / "report.txt")
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes.startswith(b"PK")
