"""The same commands on a real Dask cluster of two workers on this machine."""

import json
import subprocess
import sys

import pytest

CLUSTER = """
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """Start a scheduler and two worker processes; return the scheduler's address."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process.stdout.readline().strip()
        process.communicate("\n", timeout=30)


def run(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
def test_both_commands_equal_local_runs(start, scheduler, digits, digits_bin, tmp_path):
    image = digits / "images" / "7.npy"
    words = ("sweep", digits_bin, "--input", image, "--set", "cores.count=1,2", "--format", "json")
    there = run(start(*words, "-o", tmp_path / "there.csv", "--scheduler", scheduler))
    assert there.returncode == 0, there.stderr
    here = run(start(*words, "-o", tmp_path / "here.csv", "--jobs", 2))
    timings = ("host_seconds", "compile_seconds")
    for one, other in zip(points(there), points(here), strict=True):
        assert {k: v for k, v in one.items() if k not in timings} == {
            k: v for k, v in other.items() if k not in timings
        }
    data = ("--dataset", digits / "testset.npz", "--labels", "labels", "--limit", 40)
    words = start("eval", digits_bin, *data, "--scheduler", scheduler, "--format", "json")
    found = json.loads(run(words).stdout)
    assert found["samples"] == 40
    assert found["failed"] == 0


def points(done):
    return json.loads(done.stdout)["points"]


# Connecting is tried again and again.
NO_SCHEDULER = pytest.param("tcp://127.0.0.1:1", marks=pytest.mark.slow)


@pytest.mark.parametrize("address", [NO_SCHEDULER, "nonsense", "nonsense://127.0.0.1:1", ""])
def test_a_missing_scheduler_is_an_error(start, digits, digits_bin, tmp_path, address):
    pytest.importorskip("distributed", reason="distributed is not installed")
    words = ("--input", digits / "images" / "7.npy", "--set", "cores.count=1")
    done = run(start("sweep", digits_bin, *words, "-o", tmp_path / "r.csv", "--scheduler", address))
    assert done.returncode == 2
    assert "WORK001" in done.stderr
    assert "Traceback" not in done.stderr
