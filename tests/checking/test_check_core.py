"""A failed case leaves a core file, which the debugger opens where it went wrong."""

import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from bundle_edits import change_descriptor
from user_project import SUITE


@pytest.fixture
def open_first_core(project, cli):
    """Return a function that checks the suite and opens its first core file."""

    def check_and_open(*commands):
        done = project.check("--core-on-failure", project.folder / "core files")
        (line,) = [one for one in done.stdout.splitlines() if one.startswith("  core file: ")]
        command, _, position = line.removeprefix("  core file: ").partition(" stops ")
        words = [word for one in commands for word in ("-c", one)]
        return done, position, cli(*shlex.split(command)[1:], *words).stdout

    return check_and_open


def test_a_core_of_a_wrong_output_opens_at_the_first_different_layer(project, open_first_core):
    change_descriptor(project.folder / "digits.bin", "conv", layer=3, field="out_post", by=-1)
    done, position, said = open_first_core("where", "why conv2__2 0 0 0 0")
    assert done.exit_code == 1
    assert position == "after layer conv2__2"
    assert "> where\nlayer 4 pool2__2" in said
    assert "> why conv2__2 0 0 0 0\nconv2__2" in said


def test_a_core_of_a_rescale_integer_opens_at_its_layer(project, open_first_core):
    change_descriptor(project.folder / "digits.bin", "conv", layer=5, field="out_mul", by=1)
    assert open_first_core("where")[1] == "after layer fc__1"


def test_a_core_of_a_trap_opens_at_the_trap(project, open_first_core):
    project.write("[limits]\ncycles = 1000\n", "board.toml")
    done, position, said = open_first_core("where")
    assert done.exit_code == 1
    assert position == "at the trap"
    assert "trap: the run took more than 1000 cycles" in said


def test_a_core_over_budget_opens_at_the_worst_layer(project, open_first_core):
    project.write("[dram]\nbytes_per_cycle = 4\n", "board.toml")
    done, position, said = open_first_core("where")
    assert done.exit_code == 4
    assert position == "after layer conv2__2"
    assert "> where\nlayer 4 pool2__2" in said


def test_a_core_of_a_hazard_opens_after_the_hazard(project, racing, open_first_core):
    (project.folder / "digits.bin").write_bytes(racing)
    project.write(SUITE + 'budget.hazards = "none"')
    _, position, said = open_first_core("where", "hazards")
    assert position == "at the first hazard"
    assert "no nmp.wait load between them" in said


def test_a_core_of_a_violation_opens_at_the_violation(project, racing, open_first_core):
    (project.folder / "digits.bin").write_bytes(racing)
    _, position, said = open_first_core("where", "hazards")
    assert position == "at the first hazard"
    assert "no nmp.wait load between them" in said


def test_json_markdown_and_junit_name_the_core(project):
    change_descriptor(project.folder / "digits.bin", "conv", layer=3, field="out_post", by=-1)
    cores, markdown = project.folder / "cores", project.folder / "summary.md"
    junit = project.folder / "junit.xml"
    files = ("--markdown", markdown, "--junit", junit)
    found = project.found("--core-on-failure", cores, *files)
    assert found["core"] == {
        "path": str(cores / "seven.core"),
        "position": "after layer conv2__2",
    }
    assert "seven.core' stops after layer conv2\\_\\_2" in markdown.read_text()
    (failure,) = ElementTree.parse(junit).iterfind(".//testcase[@name='outputs']/failure")
    assert (failure.text or "").endswith("seven.core' stops after layer conv2__2")


def test_passed_cases_have_no_core(project):
    cores = project.folder / "cores"
    assert project.found("--core-on-failure", cores)["core"] is None
    assert list(cores.iterdir()) == []


def test_each_case_has_a_separate_core(project):
    names = ("a/b", "a_b", "../../x", "seven")
    cases = [SUITE.split("[[case]]")[1].replace("seven", name, 1) for name in names]
    cases = [
        case.replace("top1 = 7", "top1 = 1").replace('baseline = "seven.json"', "")
        for case in cases
    ]
    project.write("[[case]]".join([SUITE.split("[[case]]")[0], *cases]))
    cores = project.folder / "cores"
    assert project.check("--core-on-failure", cores).exit_code == 1
    made = sorted(path.name for path in cores.iterdir())
    assert len(made) == 4
    assert made[-1] == "seven.core"
    assert "a_b.core" in made


def test_an_impossible_folder_is_an_error(project):
    done = project.check("--core-on-failure", project.folder / "board.toml")
    assert done.exit_code == 2
    assert "FILE002" in done.stderr
    assert done.stdout == ""


def test_input_files_are_never_overwritten(project):
    answer = project.folder / "seven.core"
    with answer.open("wb") as file:
        np.savez(file, prob__1=np.zeros((1, 10), np.float32))
    project.write(SUITE + 'expect.outputs = "seven.core"')
    before = answer.read_bytes()
    done = project.check("--core-on-failure", project.folder)
    assert done.exit_code == 2
    assert "ARG001" in done.stderr
    assert answer.read_bytes() == before
