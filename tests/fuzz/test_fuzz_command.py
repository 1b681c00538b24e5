"""``python -m tests.fuzz``: counts, keeps what breaks something, survives crashes and hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .target import HERE, ROOT

COPIED = ("__init__", "__main__", "command", "mutate", "target", "worker")
FORMAT = """
import os, signal, time
from ..target import Target

def run(data):
    if data.startswith(b"raise"):
        raise RuntimeError("a defect")
    if data.startswith(b"abort"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if data.startswith(b"slow"):
        while True:
            pass
    if data.startswith(b"eat"):
        bytearray(1 << 34)

TARGET = Target(run, seeds=lambda: [b"fine"], mutate=lambda data, random: SEED, seconds=0.2)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with the same command and a format for each kind of failure."""
    pytest.importorskip("atheris")
    (tmp_path / "tests" / "fuzz" / "targets").mkdir(parents=True)
    for name in COPIED:
        shutil.copy(HERE / f"{name}.py", tmp_path / "tests" / "fuzz")
    targets = tmp_path / "tests" / "fuzz" / "targets"
    (targets / "__init__.py").touch()
    for name in ("fine", "raise", "abort", "slow", "eat"):
        seed = f"SEED = b{name!r}\n"
        (targets / f"{name}_.py").write_text(seed + FORMAT)
    return tmp_path


def fuzz(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words], capture_output=True, text=True, cwd=project
    )


def test_inputs_are_counted(project: Path) -> None:
    log = project / "log.jsonl"
    done = fuzz(project, "--only", "fine_", "--count", "500", "--seed", "1", "--log", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(log.read_text())
    assert record["inputs"] == record["formats"]["fine_"] >= 500
    assert f"{record['inputs']:,} inputs, 0 findings" in done.stdout
    fuzz(project, "--only", "fine_", "--count", "10", "--log", str(log))
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("raise_", "RuntimeError"),
        pytest.param("slow_", "TooSlowError", marks=pytest.mark.slow),
        ("eat_", "MemoryError"),
        pytest.param("abort_", "SIGSEGV", marks=pytest.mark.slow),
    ],
)
def test_failing_inputs_are_saved_and_reported(project: Path, name: str, place: str) -> None:
    log = project / "log.jsonl"
    done = fuzz(project, "--only", name, "--count", "20", "--seed", "1", "--log", str(log))
    assert done.returncode == 1, done.stdout + done.stderr
    (finding,) = json.loads(log.read_text())["findings"]
    assert finding["place"].startswith(place)
    kept = project / "build" / "fuzz" / name / finding["file"]
    assert kept.read_bytes().startswith(name.rstrip("_").encode())
    assert f"python -m tests.fuzz --only {name} --replay {kept}" in done.stdout


def test_an_input_is_replayed(project: Path) -> None:
    kept = project / "kept"
    kept.write_bytes(b"raise")
    done = fuzz(project, "--only", "raise_", "--replay", str(kept))
    assert done.returncode == 1
    assert "a defect" in done.stderr
    kept.write_bytes(b"fine")
    assert fuzz(project, "--only", "raise_", "--replay", str(kept)).returncode == 0


def test_ctrl_c_prints_the_summary_and_leaves_nothing(project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz", "--only", "fine_", "--minutes", "5"],
        stdout=subprocess.PIPE, text=True, cwd=project, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "findings" in said


def test_ctrl_c_during_an_import_gives_the_exit_code(project: Path) -> None:
    interrupted = "exec('import os, signal; os.kill(os.getpid(), signal.SIGINT)')"
    (project / "atheris.py").write_text(interrupted)
    done = fuzz(project, "--only", "fine_", "--minutes", "5")
    assert done.returncode == 130
    assert "0 findings" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "it needs --minutes or --count"),
        (("--only", "nothing", "--count", "1"), "there is no format"),
        (("--replay", "x"), "--replay needs --only"),
        (("--minutes", "-1"), "more than 0"),
    ],
)
def test_wrong_arguments_are_refused(words: tuple[str, ...], text: str) -> None:
    done = fuzz(ROOT, *words)
    assert done.returncode == 2
    assert text in done.stderr
