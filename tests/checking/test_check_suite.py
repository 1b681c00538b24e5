"""Suites: expectations and budgets one by one, what is no suite, several cases at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from user_project import SUITE

from nmpsim.checking import get_exit_code, read_suite
from nmpsim.diagnostics import UserError

CASE = """
[[case]]
bundle = "digits.bin"
input = "images/7.npy"
"""


def outcome(project, text):
    """Return the exit code and the checks of the only case."""
    project.write(CASE + text)
    done = project.check("--format", "json")
    case = json.loads(done.stdout)["cases"][0]
    assert case["errors"] == []
    return done.exit_code, case["checks"]


@pytest.fixture
def files(project, expected):
    """Write the outputs and layers of the digits network, exact and changed, to files."""
    exact = expected["outputs"]["prob__1"]
    near = exact.copy()
    near[0, 3] = np.nextafter(np.nextafter(near[0, 3], np.float32(1)), np.float32(1))
    np.save(project.folder / "exact.npy", exact)
    np.savez(project.folder / "near.npz", **{"output/prob__1": near, "const/x": near})
    np.savez(project.folder / "layers.npz", **expected["layers"])
    key = next(key for key in expected["layers"] if "conv2" in key)
    off = {**expected["layers"], key: expected["layers"][key].copy()}
    off[key][0, 1, 2, 3] += 5
    np.savez(project.folder / "off.npz", **off)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('expect.outputs = "exact.npy"', 0),
        ('expect.outputs = "near.npz"', 1),
        ('expect = { outputs = "near.npz", ulp = 1 }', 1),
        ('expect = { outputs = "near.npz", ulp = 2 }', 0),
        ('expect = { outputs = "near.npz", sqnr_db = 60 }', 0),
        ('expect = { outputs = "near.npz", sqnr_db = 6000 }', 1),
        ('expect = { outputs = "near.npz", sqnr_db = 60, ulp = 1 }', 1),
        ('expect.layers = "layers.npz"', 0),
        ('expect.layers = "off.npz"', 1),
        ('expect = { layers = "off.npz", ulp = 4 }', 1),
        ('expect = { layers = "off.npz", ulp = 5 }', 0),
        ('expect = { layers = "off.npz", only = ["conv2*"] }', 1),
        ('expect = { layers = "off.npz", only = ["fc__1", "conv1*"] }', 0),
        ("expect.top1 = 7", 0),
        ("expect.top1 = 1", 1),
        ("budget.cycles = 5202", 0),
        ("budget.cycles = 5201", 4),
        ('budget.saturation = "none"', 0),
        ("budget.saturation = 0", 0),
        ("budget.memory_bytes = 1000000", 0),
        ("budget.memory_bytes = 1000", 4),
        ("budget.energy_pj = 1.8e6", 0),
        ("budget.energy_pj = 1000", 4),
        ("budget.area_um2 = 20_000_000", 0),
        ("budget.area_um2 = 1000.5", 4),
    ],
)
def test_each_expectation_is_checked(project, files, text, code):
    assert outcome(project, text)[0] == code


def test_expected_shapes_may_differ_by_dimensions_of_1(project, expected):
    outputs = {name: array.reshape(10) for name, array in expected["outputs"].items()}
    layers = {name: array[..., None] for name, array in expected["layers"].items()}
    np.savez(project.folder / "flat.npz", **outputs)
    np.savez(project.folder / "deep.npz", **layers)
    assert outcome(project, 'expect = { outputs = "flat.npz", layers = "deep.npz" }')[0] == 0
    np.savez(project.folder / "flat.npz", prob__1=outputs["prob__1"].reshape(2, 5))
    project.write(CASE + 'expect.outputs = "flat.npz"')
    done = project.check()
    assert done.exit_code == 2
    assert "found: 2x5" in done.stdout


def test_a_failed_layer_is_named_with_its_element(project, files):
    _, (check,) = outcome(project, 'expect.layers = "off.npz"')
    (one,) = check["culprits"]
    assert (one["index"], one["name"], one["line"]) == (3, "conv2__2", 26)
    assert "1 of 512 elements differ, first [0, 1, 2, 3]" in one["message"]
    assert "off by up to 5 ulp" in one["message"]
    assert "layer conv2__2, line 26" in check["message"]


def test_a_failed_output_is_named_with_its_element(project, files):
    _, (check,) = outcome(project, 'expect.outputs = "near.npz"')
    assert "output prob__1: 1 of 10 elements differ, first [0, 3]:" in check["message"]
    assert "off by up to 2 ulp" in check["message"]
    assert "layer prob" in check["message"]


def test_saturation_over_budget_names_the_layer(project):
    np.save(project.folder / "bright.npy", 10 * np.load(project.folder / "images" / "7.npy"))
    project.write('[[case]]\nbundle="digits.bin"\ninput="bright.npy"\nbudget.saturation="none"')
    done = project.check()
    assert done.exit_code == 4
    assert "layer conv1__6_quantize (" in done.stdout


def test_a_trap_is_a_wrong_answer(project):
    project.write("[limits]\ncycles = 1000\n", "board.toml")
    project.write(CASE + 'device = "board.toml"\nbudget.cycles = 99999')
    done = project.check()
    assert done.exit_code == 1
    assert "cycle_limit" in done.stdout


@pytest.mark.parametrize(
    ("limit", "exit_code", "check"),
    [("100000", 0, "exit       the exit status is 0"), ("10", 1, "trap       the run stopped")],
)
def test_an_executable_needs_no_expectations(
    project, limit: str, exit_code: int, check: str
) -> None:
    program = Path(__file__).parents[1] / "debuginfo" / "programs" / "fir.elf"
    done = project.check("--max-cycles", limit, program=str(program))
    assert done.exit_code == exit_code and check in done.stdout


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "SUITE002", "no case"),
        (CASE, "SUITE002", "nothing to check"),
        ("[defaults]\nbudget = {}\n" + CASE, "SUITE002", "nothing to check"),
        (CASE + "budget.cycels = 3", "SUITE001", "Did you mean 'cycles'?"),
        (CASE + "budget.cycles = -3", "SUITE001", ">= 0"),
        (CASE + "budget.cycles = 3.5", "SUITE001", "3.5 is not a 64-bit integer"),
        (CASE + 'budget.saturation = "some"', "SUITE001", "'baseline'"),
        (CASE + 'budget.saturation = "baseline"', "SUITE001", "has no baseline to compare with"),
        (CASE + "budget.cycles_percent = 3", "SUITE001", "has no baseline to compare with"),
        (CASE + 'expect.only = ["fc"]', "SUITE002", "nothing to check"),
        (CASE + 'expect.outputs = ""', "SUITE001", "not the name of a file"),
        (CASE + "expect = 3", "SUITE001", ""),
        ("case = 3", "SUITE001", "not a list of tables"),
        ("defaults = 3", "SUITE001", "not a table"),
        ("cases = []", "SUITE001", "Did you mean 'case'?"),
        ("[[case]]\nbudget.cycles = 3", "SUITE001", "'bundle' is missing"),
        (2 * (CASE + "budget.cycles = 3"), "SUITE001", "two cases are named 'digits'"),
        ("[[case]\n", "SUITE001", "not TOML"),
        ("a = " + 5000 * "[", "SUITE001", ""),
        (CASE + "budget.cycles = " + 5000 * "9", "SUITE001", "not TOML"),
        (CASE + "expect.sqnr_db = nan", "SUITE001", "nan is not a finite number"),
        (CASE + "expect.sqnr_db = -inf", "SUITE001", "-inf is not a finite number"),
        (CASE + "budget.cycles_percent = inf", "SUITE001", "inf is not a finite number"),
        (CASE + "budget.cycles_percent = 1" + 400 * "0", "SUITE001", "too large"),
    ],
)
def test_invalid_suites_are_refused(project, text, code, words):
    project.write(text)
    done = project.check()
    assert done.exit_code == 2
    assert f"error[{code}]" in done.stderr
    assert words in done.stderr
    assert done.stdout == ""


def test_all_errors_are_reported_together(project):
    project.write(CASE + "budget.cycels = 3\n" + CASE + 'expect.ulp = "2"')
    with pytest.raises(UserError) as caught:
        read_suite(project.folder / "suite.toml")
    assert len(caught.value.diagnostics) == 2


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(project):
    text = (project.folder / "suite.toml").read_text()
    (project.folder / "suite.toml").write_bytes(
        b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    )
    assert project.check().exit_code == 0


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", "folder"])
def test_unreadable_suites_are_refused(project, cli, content):
    path = project.folder / "other.toml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    done = cli("check", path)
    assert done.exit_code == 2
    assert "error[" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("digits.bin", "nothing.bin", "FILE001"),
        ("digits.bin", "suite.toml", "BUN001"),
        ("images/7.npy", "images/none.npy", "FILE001"),
        ("images/7.npy", "digits.npz", "INPUT001"),
        ("board.toml", "suite.toml", "DEV002"),
        ("expect.top1 = 7", 'expect.outputs = "digits.npz"', "INPUT001"),
        ("expect.top1 = 7", 'expect.outputs = "images/7.npy"', "INPUT002"),
        ("expect.top1 = 7", 'expect.only = ["none*"]', "SUITE002"),
        ("expect.top1 = 7", "expect.top1 = 10", "DATA001"),
    ],
)
def test_other_cases_run_after_an_error(project, old, new, code):
    good = SUITE.split("[[case]]")[1].replace("seven.json", "again.json")
    project.write((project.folder / "seven.json").read_text(), "again.json")
    project.write(f"{SUITE.replace(old, new)}\n[[case]]\n{good.replace('seven', 'good', 1)}")
    if old == "board.toml":
        project.write(
            f"{SUITE}\n[[case]]\n{good.replace('seven', 'good', 1)}".replace(
                'name = "seven"', f'name = "seven"\ndevice = "{new}"'
            )
        )
    done = project.check("--format", "json")
    assert done.exit_code == 2
    bad, other = json.loads(done.stdout)["cases"]
    assert (bad["status"], other["status"]) == ("error", "passed")
    assert f"error[{code}]" in bad["errors"][0]


def test_cases_run_in_processes(project):
    names = ["3", "7", "9", "1"]
    project.write(
        "[defaults]\nbundle = 'digits.bin'\n"
        + "".join(
            f"[[case]]\nname = 'n{n}'\ninput = {{ data = 'images/{n}.npy' }}\nexpect.top1 = {n}\n"
            for n in names
        )
    )
    alone = project.check("--format", "json")
    together = project.check("--format", "json", "--jobs", 2)
    assert alone.exit_code == together.exit_code == 0
    assert alone.stdout == together.stdout
    assert [case["name"] for case in json.loads(together.stdout)["cases"]] == [
        f"n{n}" for n in names
    ]


def test_selected_cases_run(project):
    project.write(f"{CASE}name = 'a'\nexpect.top1 = 7\n{CASE}name = 'b'\nexpect.top1 = 8")
    assert project.check("--case", "a").exit_code == 0
    assert project.check("--case", "b").exit_code == 1
    assert project.check().exit_code == 1
    done = project.check("--case", "c")
    assert done.exit_code == 2
    assert "the suite has no case 'c'" in done.stderr


def test_exit_codes_have_their_precedence():
    from nmpsim.checking import CaseResult, CheckResult
    from nmpsim.diagnostics import Diagnostic

    passed = CaseResult("p", "", checks=(CheckResult("outputs", "passed", ""),))
    over = CaseResult(
        "o", "", checks=(CheckResult("cycles", "over", ""), CheckResult("outputs", "passed", ""))
    )
    wrong = CaseResult(
        "w", "", checks=(CheckResult("cycles", "over", ""), CheckResult("outputs", "wrong", ""))
    )
    error = CaseResult("e", "", errors=(Diagnostic("BASE001", "x"),))
    assert get_exit_code([passed]) == 0
    assert get_exit_code([passed, over]) == 4
    assert get_exit_code([wrong, over]) == 1
    assert get_exit_code([wrong, error, over]) == 2


def test_defaults_apply_key_by_key(project):
    project.write(
        """
        [defaults]
        bundle = "digits.bin"
        input = "images/7.npy"
        budget = { cycles_percent = 3, saturation = "baseline", memory_bytes = 90000 }
        expect = { top1 = 7, only = ["conv1"] }

        [[case]]
        name = "with"
        baseline = "seven.json"
        budget.memory_bytes = 1000000

        [[case]]
        name = "without"
        budget.cycles = 9999
        """
    )
    one, other = read_suite(project.folder / "suite.toml").cases
    assert (one.budget.cycles_percent, one.budget.memory_bytes) == (3, 1000000)
    assert one.budget.saturation is not None
    assert one.budget.saturation.at_most is None
    assert (other.budget.cycles, other.budget.memory_bytes) == (9999, 90000)
    assert (other.budget.cycles_percent, other.budget.saturation) == (None, None)
    assert one.expect.top1 == other.expect.top1 == 7
    assert (one.expect.only, other.expect.only) == (("conv1",), ())
