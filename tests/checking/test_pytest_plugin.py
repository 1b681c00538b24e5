"""The plugin, in pytest runs of its own."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

import nmpsim.checking.snapshot  # noqa: F401 - pytester forgets what is imported in its runs

pytest_plugins = "pytester"

# Hypothesis's plugin would import Hypothesis anew in every run.
PLUGIN = ("-p", "nmpsim.pytest_plugin", "-p", "no:hypothesispytest")
HEADER = """
import numpy as np
import pytest

SEVEN = {"data": np.load("images/7.npy")}
"""


@pytest.fixture
def tests(pytester, good_project, expected):
    """Return a function that runs the text of a test module beside the digits files."""
    for name in ("digits.bin", "digits.lir.txt", "digits.npz", "digits.tensors.json"):
        shutil.copy(good_project / name, pytester.path)
    shutil.copytree(good_project / "images", pytester.path / "images")

    def run(text, *words):
        # Python knows a changed file by its size and by the second of its change.
        shutil.rmtree(pytester.path / "__pycache__", ignore_errors=True)
        pytester.makepyfile(test_net=HEADER + text)
        return pytester.runpytest_inprocess(*PLUGIN, "--strict-markers", *words)

    return run


def test_runs_return_reports(tests):
    done = tests(
        """
        def test_answer(nmp):
            run = nmp.run("digits.bin", SEVEN)
            assert run.outputs["prob__1"].argmax() == 7
            assert run.cycles == 5202 == run.report.cycles
            assert run.layers[3].name == "conv2__2"

        @pytest.fixture(scope="session")
        def compiled(nmp_session):
            return nmp_session.compile("digits.lir.txt", "digits.npz", tiling="layer")

        def test_compiled(nmp, compiled):
            assert nmp.run(compiled, SEVEN).cycles == 5202
            assert nmp.load("digits.bin") is nmp.load("digits.bin")
        """.replace("\n        ", "\n")
    )
    done.assert_outcomes(passed=2)


def test_a_wrong_output_names_element_and_layer(tests):
    done = tests(
        """
def test_answer(nmp):
    run = nmp.run("digits.bin", SEVEN)
    wrong = run.outputs["prob__1"].copy()
    nmp.assert_outputs(run, {"prob__1": wrong})
    wrong[0, 4] = np.nextafter(wrong[0, 4], np.float32(1))
    nmp.assert_outputs(run, {"prob__1": wrong}, ulp=1)
    nmp.assert_outputs(run, {"prob__1": wrong}, sqnr_db=50)
    nmp.assert_outputs(run, {"prob__1": wrong})

def test_nothing(nmp):
    nmp.assert_outputs(nmp.run("digits.bin", SEVEN))

def test_layers(nmp):
    run = nmp.run("digits.bin", SEVEN)
    nmp.assert_outputs(run, layers={"fc__1": np.zeros((1, 10), np.int8)})
"""
    )
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(
        [
            "E * AssertionError: outputs: output prob__1: 1 of 10 elements differ,*[[]0, 4]: *",
            "E * layer 7 prob, line 38: *off by up to 1 ulp, SQNR * dB",
            "*nothing to compare with*",
            "E * AssertionError: layers: 1 of 1 layers differ; * of 10 elements differ,*",
        ]
    )
    assert "snapshot.py" not in done.stdout.str()  # the traceback ends in the test


@pytest.mark.parametrize("update", [(), ("--nmp-update",)])
@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        ("sqnr_db=np.nan", "a finite number"),
        ("sqnr_db=np.inf", "a finite number"),
        ("ulp=-1", "a whole number of at least 0"),
        ("ulp=0.5", "a whole number of at least 0"),
        ("ulp=True", "a whole number of at least 0"),
        ("cycles_percent=np.inf", "a finite number of at least 0"),
        ("cycles_percent='1'", "a finite number of at least 0"),
    ],
)
def test_an_invalid_tolerance_is_an_error(tests, pytester, tolerance, expected, update):
    done = tests(
        f"""
def test_snapshot(nmp, nmp_snapshot):
    nmp_snapshot.check(nmp.run("digits.bin", SEVEN), {tolerance})

@pytest.mark.skipif("{tolerance}".startswith("cycles"), reason="no tolerance of outputs")
def test_outputs(nmp):
    run = nmp.run("digits.bin", SEVEN)
    nmp.assert_outputs(run, run.outputs, {tolerance})
""",
        *update,
    )
    outcomes = done.parseoutcomes()
    assert outcomes["failed"] == 2 - outcomes.get("skipped", 0)
    name = tolerance.partition("=")[0]
    error = "E * nmpsim.diagnostics.UserError: error?ARG001?: "
    done.stdout.fnmatch_lines(
        [f"{error}{name} is not a valid tolerance", f"E *expected: {expected}"]
    )
    assert not (pytester.path / "nmp_snapshots").exists()
    assert "snapshot.py" not in done.stdout.str()


def test_hazards_fail_on_request(tests, pytester, racing):
    (pytester.path / "racing.bin").write_bytes(racing)
    done = tests(
        """
def test_none(nmp):
    assert nmp.run("digits.bin", SEVEN, hazards="none").cycles == 5202

def test_one(nmp):
    assert nmp.run("racing.bin", SEVEN, strict=False).outputs["prob__1"].argmax() == 7
    nmp.run("racing.bin", SEVEN, hazards="none", strict=False)

def test_contract(nmp):
    nmp.run("racing.bin", SEVEN)

def test_no_such_limit(nmp):
    nmp.run("digits.bin", SEVEN, hazards=0)
"""
    )
    done.assert_outcomes(passed=1, failed=3)
    done.stdout.fnmatch_lines(
        [
            "E * AssertionError: hazards: 1 hazard: layer conv2__2: core 1 nmp.conv at 0x*",
            "E *layer 3 conv2__2, line 26: *no nmp.wait load between them",
            "E * AssertionError: trap: * contract: missing synchronization: core 1 nmp.conv at 0x*",
            "E * nmpsim.diagnostics.UserError: error?ARG001?: unknown value of hazards",
        ]
    )


def test_snapshots_are_written_and_compared(tests, pytester):
    text = """
@pytest.mark.parametrize("digit", ["7", "a/b"])
def test_net(nmp, nmp_snapshot, digit):
    run = nmp.run("digits.bin", SEVEN)
    nmp_snapshot.check(run)
    nmp_snapshot.check(run, "again")
"""
    missing = tests(text)
    missing.assert_outcomes(failed=2)
    missing.stdout.fnmatch_lines(["*the baseline does not exist yet*", "*pytest --nmp-update*"])
    folder = pytester.path / "nmp_snapshots" / "test_net"
    assert not folder.exists()
    updated = tests(text, "--nmp-update")
    updated.assert_outcomes(passed=2)
    updated.stdout.fnmatch_lines(["nmpsim: 4 snapshots written"])
    names = sorted(path.name for path in folder.iterdir())
    assert names[:2] == ["test_net[7].again.json", "test_net[7].json"]
    assert all(re.fullmatch(r"test_net\[a_b\](.again)?-[0-9a-f]{8}.json", n) for n in names[2:])
    assert len(names) == 4
    tests(text).assert_outcomes(passed=2)


def test_a_worse_result_fails(tests, pytester):
    text = """
def test_net(nmp, nmp_snapshot):
    nmp_snapshot.check(nmp.run("digits.bin", SEVEN), cycles_percent=1)
"""
    tests(text, "--nmp-update").assert_outcomes(passed=1)
    path = pytester.path / "nmp_snapshots" / "test_net" / "test_net.json"
    document = json.loads(path.read_text())
    document["cycles"] -= 100
    document["layers"][3]["cycles"] -= 100
    path.write_text(json.dumps(document))
    done = tests(text)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["E * layer 3 conv2__2, line 26: 1,070 cycles, 100 more than 970", "E *--nmp-update*"]
    )
    assert "nmpsim check --update-baseline" not in done.stdout.str()
    tests(text.replace("=1)", "=5)")).assert_outcomes(passed=1)


def test_a_snapshot_of_another_device_fails(tests):
    text = """
@pytest.mark.nmp_device(cores_clock_mhz=800)
def test_net(nmp, nmp_snapshot):
    nmp_snapshot.check(nmp.run("digits.bin", SEVEN))
"""
    tests(text, "--nmp-update").assert_outcomes(passed=1)
    done = tests(text.replace("800", "900"))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["*the run uses another device than the baseline", "*clock_mhz 800 -> 900"]
    )


def test_two_snapshots_need_two_names(tests):
    done = tests(
        """
def test_net(nmp, nmp_snapshot):
    run = nmp.run("digits.bin", SEVEN)
    nmp_snapshot.check(run)
    nmp_snapshot.check(run)
""",
        "--nmp-update",
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*give each its own name*"])


def test_markers_select_devices(tests, pytester):
    (pytester.path / "slow.toml").write_text("[dram]\nbytes_per_cycle = 4\n")
    done = tests(
        """
def cycles(nmp):
    return nmp.run("digits.bin", SEVEN).cycles

def test_its_own(nmp):
    assert cycles(nmp) == 5202

@pytest.mark.nmp_device("slow.toml")
class TestSlow:
    def test_file(self, nmp):
        assert cycles(nmp) > 2700

    @pytest.mark.nmp_device(dram_bytes_per_cycle=16)
    def test_nearest(self, nmp):
        assert cycles(nmp) == 5202

@pytest.mark.nmp_device(dram_bytes_per_cycel=16)
def test_unknown(nmp):
    cycles(nmp)

@pytest.mark.nmp_device(limits_cycles=100)
def test_trap(nmp):
    cycles(nmp)
"""
    )
    done.assert_outcomes(passed=3, failed=2)
    done.stdout.fnmatch_lines(
        [
            "E * nmpsim.diagnostics.UserError: error?DEV002?: *setting ?dram? bytes_per_cycel",
            "E * AssertionError: trap: the run stopped: cycle_limit*",
        ]
    )
    assert "config.py" not in done.stdout.str()  # the traceback ends in the test


def test_markers_are_described(tests):
    done = tests("", "--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.nmp_device(file=None, [*][*]settings): *"])


def test_an_installed_pytest_loads_the_plugin(repository_page):
    project = tomllib.loads(repository_page("pyproject.toml"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN[1]: PLUGIN[1]}


def test_pytest_starts_as_fast_as_without(tmp_path):
    code = (
        "import pytest, sys\n"
        "code = pytest.main(['-p', 'nmpsim.pytest_plugin', '-q', '-p', 'no:cacheprovider'])\n"
        "heavy = {'numpy', 'numba', 'rich', 'cattrs', 'nmpsim.session'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_examples_of_the_page_run(tests, pytester, repository_page):
    (example,) = re.findall(r"```python\n(.*?)```", repository_page("docs/pytest.md"), re.S)
    pytester.makepyfile(test_page=example)
    pytester.runpytest_inprocess(*PLUGIN, "--nmp-update").assert_outcomes(passed=3)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3)
