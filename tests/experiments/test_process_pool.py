"""Pools of processes where the system allows too few threads or processes."""

import multiprocessing
import operator
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from nmpsim.diagnostics import UserError
from nmpsim.experiments import process_pool as pools
from nmpsim.experiments.process_pool import open_process_pool

OTHER_USER = 65533
"""A user without other processes, of whom the system allows few."""


def refuse(*_):
    raise RuntimeError("can't start new thread")


def test_jobs_fail_when_the_thread_that_hands_them_out_ends(monkeypatch):
    monkeypatch.setattr(multiprocessing.queues.Queue, "_start_thread", refuse)
    hook = threading.excepthook
    with (
        pytest.raises(RuntimeError, match="can't start new thread"),
        open_process_pool(7, 2) as pool,
    ):
        first = pool.submit(operator.eq, 7)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            first.result(timeout=60)
        pool.submit(operator.eq, 7).result(timeout=60)
    assert not multiprocessing.active_children()
    assert threading.excepthook is hook


def test_a_pool_without_its_thread_fails(monkeypatch):
    start = threading.Thread.start

    def refusing(thread):
        if type(thread).__name__ == "_ExecutorManagerThread":
            refuse()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    with (
        pytest.raises(RuntimeError, match="can't start new thread"),
        open_process_pool(7, 2) as pool,
    ):
        pool.submit(operator.eq, 7)
    assert not multiprocessing.active_children()


def end_worker(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_a_worker_that_is_killed_is_not_a_system_without_threads():
    with (
        pytest.raises(UserError, match="a worker process was killed") as caught,
        open_process_pool(7, 2) as pool,
    ):
        with pytest.raises(BrokenProcessPool):
            pool.submit(end_worker, None).result(timeout=60)
        try:
            pool.submit(operator.eq, 7)
        finally:
            assert pool.submit.__self__.error is None
    assert caught.value.diagnostics[0].code == "WORK001"
    assert not multiprocessing.active_children()


def test_ended_foreign_threads_do_not_matter(monkeypatch):
    ended = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    with open_process_pool(7, 2) as pool:
        other = threading.Thread(target=refuse)
        other.start()
        other.join()
        assert pool.submit(operator.eq, 7).result(timeout=60)
    assert [one.thread for one in ended] == [other]


def test_a_worker_without_threads_says_so_in_its_first_job(monkeypatch):
    for name in ("_shared", "_set_up_error"):
        monkeypatch.setattr(pools, name, None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pools._set_up(None, 7)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pools._call(operator.eq, 7)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs to be root, who becomes a user without processes",
)
def test_a_limit_of_processes_is_reported(start, digits, digits_bin):
    become = [
        "setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups",
        "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search",
    ]  # fmt: skip
    if subprocess.run([*become, sys.executable, "-c", ""], capture_output=True).returncode:
        pytest.skip("this root may not become another user")
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are root's own
        folder = Path(name)
        folder.chmod(0o755)
        program, data = (shutil.copy(path, folder) for path in (digits_bin, digits / "testset.npz"))
        words = ("--dataset", data, "--labels", "labels", "--limit", 80, "--jobs", 3)
        setting = {"HOME": name, "NMPSIM_COMPILE_AHEAD": "0", "OPENBLAS_NUM_THREADS": "1"}
        for limit in range(2, 7):
            done = subprocess.run(
                [*become, "prlimit", f"--nproc={limit}:{limit}", *start("eval", program, *words)],
                env={**os.environ, **setting},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 2, (limit, done.stderr)
            assert done.stderr.startswith("error[ENV002]: the system allows too few"), limit
            assert "Traceback" not in done.stderr, limit
