"""nmpsim as a process: pipes, signals, streams, start-up time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nmpsim


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((1, 4), np.int8))
    return path


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return kept | more


@pytest.mark.parametrize(("behaviour", "code"), [("", 0), ("trap", 1), ("bug", 3)])
def test_commands_have_their_exit_codes(process, one_input, data, behaviour, code):
    done = process("run", one_input, "--input", data, env=environment(STAND_IN=behaviour))
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_user_error_is_exit_code_2(process, one_input):
    done = process("run", one_input)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[INPUT001]: no value for input 'data'")


def test_stdout_has_results_and_stderr_messages(process, one_input, data):
    done = process("run", one_input, "--input", data, env=environment(STAND_IN="compiling"))
    assert done.stderr.splitlines() == [
        "compiling kernels for the first time: this takes up to a minute, once"
    ]
    assert "compiling" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_limited_terminal_encoding_is_supported(process, tmp_path):
    (tmp_path / "ü.bin").write_text("no bundle")
    settings = environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    done = process("inspect", tmp_path / "ü.bin", env=settings)
    assert done.returncode == 2
    assert "\\xfc.bin at byte 0x0: error[BUN001]" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("disasm",), ("inspect",), ("inspect", "--format", "json"), ("inspect", "--help"), ()],
)
def test_a_closed_pipe_is_no_error(command, one_input, arguments):
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    done = subprocess.run(
        command(*(arguments or ("--help",)), one_input),
        stdout=writing_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("inspect", "BUNDLE"), ("--help",), ("run", "--help"), ("--version",)]
)
def test_a_full_disk_is_reported(one_input, arguments):
    words = [str(one_input) if word == "BUNDLE" else word for word in arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nmpsim", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("standard output: error[FILE002]: cannot write the result")
    assert "Exception ignored" not in done.stderr


def test_ctrl_c_leaves_nothing_behind(command, one_input, data, tmp_path):
    ready = tmp_path / "ready"
    saving = ["--save-outputs", tmp_path / "o.npz", "-o", tmp_path / "report.txt"]
    before = sorted(tmp_path.iterdir())
    running = subprocess.Popen(
        command("run", one_input, "--input", data, *saving),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(STAND_IN="slow", STAND_IN_READY=str(ready)),
        # A process that was started in the background may have been told to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not ready.exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, b"", b"interrupted\n")
    ready.unlink()
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "module", ["click", "attrs", "nmpsim.cli.guard", "nmpsim.cli.commands.run"]
)
def test_ctrl_c_during_the_import_is_handled(module):
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder)\n"
        "sys.argv = ['nmpsim', 'run', '--help']\n"
        "from nmpsim.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_outside_handlers_is_handled():
    code = (
        "import sys\n"
        "class Ends:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'nmpsim.cli.interrupt': Ends()\n"
        "sys.meta_path.insert(0, Finder)\n"
        "sys.argv = ['nmpsim', 'run', '--help']\n"
        "from nmpsim.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_special_files_are_written_to_not_replaced(process, one_input, data, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = process("run", one_input, "--input", data, "-o", pipe)
    assert done.returncode == 0
    assert pipe.is_fifo()
    assert os.read(reader, 100).startswith(b"lenet")
    os.close(reader)


def in_a_terminal(words: list[str], env: dict[str, str]) -> bytes:
    """Return the output of a command on a terminal."""
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    started = subprocess.Popen(words, stdout=child, stderr=child, stdin=child, env=env)
    os.close(child)
    chunks = []
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    started.wait(30)
    os.close(parent)
    return b"".join(chunks)


def test_colour_needs_a_terminal_and_permission(command, one_input, data):
    words = command("run", one_input, "--input", data)
    colourful = in_a_terminal(words, environment(TERM="xterm-256color"))
    assert b"\x1b[35m" in colourful
    plain = in_a_terminal(words, environment(TERM="xterm-256color", NO_COLOR="1"))
    assert b"\x1b[35m" not in plain
    assert b"host" in plain


def test_errors_are_coloured_on_a_terminal_only(command, one_input):
    words = command("run", one_input)
    assert b"\x1b[31m" in in_a_terminal(words, environment(TERM="xterm-256color"))
    assert b"\x1b" not in in_a_terminal(words, environment(TERM="xterm", NO_COLOR="1"))


def test_few_modules_are_imported_before_ctrl_c_is_handled():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import nmpsim.cli; print(*sys.modules)"
    words = [sys.executable, "-IS", "-c", code, str(Path(nmpsim.__file__).parents[1])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert not {"typing", "collections", "re", "contextlib", "enum"} & set(done.stdout.split())


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['nmpsim', '--help']\n"
        "from nmpsim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'rich', 'cattrs', 'json'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("run", "BUNDLE", "--input", "DATA"), ("inspect", "BUNDLE"), ("--version",), ("--help",)],
)
def test_a_closed_stdout_is_reported(command, one_input, data, arguments):
    words = [{"BUNDLE": one_input, "DATA": data}.get(word, word) for word in arguments]
    line = ["sh", "-c", '"$@" >&-', "sh", *command(*words)]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "standard output: error[FILE002]: cannot write the result" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_does_not_prevent_a_file(command, one_input, data, tmp_path):
    words = command("run", one_input, "--input", data, "-o", tmp_path / "report.txt")
    line = ["sh", "-c", '"$@" >&-', "sh", *words]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "report.txt").read_text().startswith("lenet")
