"""Sweeps and evaluations that are killed while they write: the same command goes on."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from nmpsim.experiments.table import COLUMNS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
# nmpsim, until it writes its results for the third time: half of the file is there, then it is
# killed as a user or the system would, in the middle of what its workers do.
DYING = """
import contextlib, os, signal, sys
from nmpsim import atomic
from nmpsim.cli import main
replacing, times = atomic._replacing, []
results = os.path.basename(sys.argv[sys.argv.index("-o") + 1])

@contextlib.contextmanager
def dying(target):
    with replacing(target) as file:
        yield file
        times.append(target.name == results)
        if sum(times) == 3:
            file.truncate(file.tell() // 2)
            os.kill(os.getpid(), signal.SIGKILL)

atomic._replacing = dying
main()
"""


def killed(words):
    """Run a command until it is killed; all its processes have ended then."""
    command = [sys.executable, "-c", DYING, *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    _, said = process.communicate(timeout=500)  # its workers have the pipe, too
    assert process.returncode == -signal.SIGKILL, said
    deadline = time.monotonic() + 60
    while lives(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def temporaries(folder):
    return list(folder.glob(".nmpsim-*.tmp"))


@pytest.mark.slow
def test_a_killed_sweep_can_be_continued(cli, digits, digits_bin, tmp_path):
    values = ",".join(str(65536 + 64 * i) for i in range(5))
    words = (
        "sweep", digits_bin, "--input", digits / "images" / "7.npy",
        "--set", f"scratchpad.bytes={values}", "--jobs", 2,
    )  # fmt: skip
    (tmp_path / "a").mkdir()
    out, whole = tmp_path / "a" / "r.csv", tmp_path / "whole.csv"
    killed((*words, "-o", out))
    assert len(temporaries(out.parent)) == 1, "it was killed while it wrote"
    assert len(rows(out)) == 2, "the file is whole"
    again = cli(*words, "-o", out)
    assert again.exit_code == 0, again.output
    assert "2 of 5 points were already in" in again.stderr
    assert cli(*words, "-o", whole).exit_code == 0
    assert rows(out) == rows(whole)
    assert [path.name for path in out.parent.iterdir()] == ["r.csv"]


def rows(path):
    """Return the rows without columns that depend on the computer."""
    wall_time = {"host_seconds", "compile_seconds"}
    with path.open() as file:
        return [{c: row[c] for c in COLUMNS if c not in wall_time} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_killed_evaluation_can_be_continued(cli, digits, digits_bin, tmp_path):
    words = (
        "eval", digits_bin, "--dataset", digits / "testset.npz", "--labels", "labels",
        "--limit", 80, "--jobs", 2,
    )  # fmt: skip
    (tmp_path / "a").mkdir()
    out, whole = tmp_path / "a" / "r.json", tmp_path / "whole.json"
    killed((*words, "-o", out))
    assert len(temporaries(out.parent)) == 1, "it was killed while it wrote"
    assert 0 < len(json.loads(out.read_text())["answers"]["index"]) < 80
    again = cli(*words, "-o", out)
    assert again.exit_code == 0, again.output
    assert "of 80 samples were already in" in again.stderr
    assert cli(*words, "-o", whole).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()
    assert [path.name for path in out.parent.iterdir()] == ["r.json"]
