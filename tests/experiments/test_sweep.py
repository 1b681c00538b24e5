"""Sweeps of the digits: rows, failures, going on, files of something else."""

import csv
import json
import os
import signal
import subprocess
import time

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.experiments.table import COLUMNS

GRID = {"cores.count": [1, 2], "scratchpad.bytes": [4096, 65536]}


def swept(digits, seven, grid=GRID, **more):
    return nmpsim.sweep(
        digits / "digits.lir.txt",
        {"data": seven},
        grid,
        weights=digits / "digits.npz",
        jobs=2,
        **more,
    )


def test_each_point_equals_a_run_on_its_device(digits, seven, tmp_path):
    result = swept(digits, seven)
    assert [(r["cores_count"], r["scratchpad_bytes"]) for r in result.rows] == [
        (1, 4096),
        (1, 65536),
        (2, 4096),
        (2, 65536),
    ]
    row = result.rows[3]
    config = attrs.evolve(nmpsim.default_device(), cores_count=2, scratchpad_bytes=65536)
    compiled = nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz", device=config)
    nmpsim.save(compiled, tmp_path / "two.bin")
    report = nmpsim.Device(config).run(nmpsim.load(tmp_path / "two.bin"), {"data": seven})
    assert row["cycles"] == report.cycles
    assert row["macs"] == sum(layer.macs for layer in report.layers)
    assert row["saturated"] == sum(layer.saturated for layer in report.layers)
    assert row["bound_cycles"] <= row["cycles"]
    stalls = sum(value for name, value in row.items() if name.startswith("core_cycles_"))
    assert stalls == sum(sum(layer.stalls.values()) for layer in report.layers)


def test_a_second_start_runs_only_missing_points(digits, seven, tmp_path):
    path = tmp_path / "with a space.csv"
    first = swept(digits, seven, {"cores_count": [2]}, results=path)
    assert first.reused == 0
    events = []
    second = swept(digits, seven, {"cores_count": [1, 2]}, results=path, progress=events.append)
    assert second.reused == 1
    assert second.rows[1] == first.rows[0]
    assert [event.done for event in events if event.kind == "point"] == [2]
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["cores_count"] for row in rows] == ["1", "2"]
    assert swept(digits, seven, {"cores_count": [1, 2]}, results=path).reused == 2


def test_results_of_another_program_are_not_mixed(digits, seven, tmp_path):
    path = tmp_path / "r.csv"
    swept(digits, seven, {"cores_count": [1]}, results=path)
    before = path.read_bytes()
    with pytest.raises(nmpsim.UserError, match=r"RESULT001.*another inputs digest"):
        swept(digits, seven + 1, {"cores_count": [1]}, results=path)
    with pytest.raises(nmpsim.UserError, match=r"RESULT001.*another program digest"):
        swept(digits, seven, {"cores_count": [1]}, results=path, numerics="float")
    assert path.read_bytes() == before
    path.write_text("a,b\n1,2\n")
    with pytest.raises(nmpsim.UserError, match=r"RESULT001.*columns of the file are not those"):
        swept(digits, seven, {"cores_count": [1]}, results=path)


def test_a_point_that_fails_is_a_row(digits, seven):
    grid = {"limits_cycles": [100, 10**9], "dram_bytes": [1 << 20, 1 << 30]}
    rows = swept(digits, seven, grid).rows
    assert [row["error"] for row in rows] == ["COMP002", "cycle_limit", "COMP002", None]
    assert rows[1]["cycles"] is None
    contradiction = {"dram_burst_bytes": [64, 128], "dram_row_bytes": [64, 2048]}
    rows = swept(digits, seven, contradiction).rows
    assert [row["error"] for row in rows] == [None, None, "DEV003", None]
    assert "burst is longer" in rows[2]["message"]


def test_a_wrong_input_ends_the_sweep(digits, seven):
    with pytest.raises(nmpsim.UserError, match="INPUT002"):
        swept(digits, seven[..., :4])


def test_parquet_equals_csv(digits, seven, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "r.parquet"
    first = swept(digits, seven, {"cores_count": [1]}, results=path)
    again = swept(digits, seven, {"cores_count": [1]}, results=path)
    assert again.reused == 1
    assert again.rows == first.rows


def test_the_command_takes_a_bundle_and_a_grid_file(cli, digits, digits_bin, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_bytes(b"\xef\xbb\xbf[cores]\r\ncount = [1, 2]\r\n")
    image, out = digits / "images" / "7.npy", tmp_path / "r.csv"
    words = ("sweep", digits_bin, "--input", image, "--grid", grid, "-o", out, "--jobs", 2)
    done = cli(*words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    points = document["points"]
    assert document["pareto"] == [point["point"] for point in points], "each has an advantage"
    assert [point["cores_count"] for point in points] == [1, 2]
    text = cli(*words, "--set", "cores.count=2,1")
    assert "2 of 2 points were already in" in text.stderr
    assert "cores.count" in text.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--set", "cores.cuont=1"), "Did you mean 'cores.count'?"),
        (("--set", "cores.count=1,x"), "GRID001"),
        (("--set", "cores.count=0"), "DEV003"),
        ((), "GRID001"),
        (
            ("--set", "cores.count=1", "--set", "cores.count=2"),
            "two --set options name the same setting",
        ),
    ],
)
def test_an_unusable_grid_is_an_error(cli, digits, digits_bin, tmp_path, words, code):
    image = digits / "images" / "7.npy"
    done = cli("sweep", digits_bin, "--input", image, "-o", tmp_path / "r.csv", *words)
    assert done.exit_code == 2
    assert code in done.stderr


def test_a_grid_with_an_unreadable_number_is_an_error(cli, digits, digits_bin, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(f"[cores]\ncount = {5000 * '9'}\n")
    image = digits / "images" / "7.npy"
    words = ("--input", image, "--grid", grid, "-o", tmp_path / "r.csv")
    done = cli("sweep", digits_bin, *words)
    assert done.exit_code == 2
    assert "GRID001" in done.stderr


def test_results_go_into_csv_or_parquet(cli, digits, digits_bin, tmp_path):
    image = digits / "images" / "7.npy"
    words = ("--input", image, "--set", "cores.count=1", "-o", tmp_path / "r.txt")
    done = cli("sweep", digits_bin, *words)
    assert done.exit_code == 2
    assert ".csv or .parquet" in done.stderr


def test_ctrl_c_leaves_the_file_and_no_process(start, digits, tmp_path):
    out = tmp_path / "r.csv"
    values = ",".join(str(65536 + 64 * i) for i in range(400))
    words = start(
        "sweep", digits / "digits.lir.txt", "--weights", digits / "digits.npz", "--input",
        digits / "images" / "7.npy", "--set", f"scratchpad.bytes={values}", "-o", out, "--jobs", 2,
    )  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 500
        while not out.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "the same command continues" in said
    assert "Traceback" not in said
    with out.open() as file:
        assert 0 < len(list(csv.DictReader(file))) < 400
    deadline = time.monotonic() + 10
    while group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not group_lives(process.pid)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_plots_are_drawn(cli, digits, digits_bin, tmp_path):
    pytest.importorskip("vl_convert", reason="vl_convert is not installed")
    image, out, plots = digits / "images" / "7.npy", tmp_path / "r.csv", tmp_path / "p q"
    words = ("--input", image, "--set", "cores.count=1,2", "-o", out, "--plot", plots)
    assert cli("sweep", digits_bin, *words).exit_code == 0
    for name in ("cycles.svg", "roofline.svg", "pareto.svg"):
        assert b"<svg" in (plots / name).read_bytes()[:1000]
    assert b"2 cores of 64 MACs" in (plots / "roofline.svg").read_bytes()
    assert b"A: cores.count 1" in (plots / "pareto.svg").read_bytes()


def test_the_pareto_front_is_found():
    from nmpsim.experiments.pareto import find_pareto_front

    points = [(1, 9), (2, 9), (2, 5), (3, 7), (4, 1)]
    assert find_pareto_front(points) == [(1, 9), (2, 5), (4, 1)]
    assert np.array(find_pareto_front(points[:1])).shape == (1, 2)
