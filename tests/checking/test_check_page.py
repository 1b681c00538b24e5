"""Test that the suite in docs/check.md runs and that its tables are complete."""

import json
import re

import attrs
import numpy as np
from jsonschema import Draft202012Validator

import nmpsim
from nmpsim.checking import Budget, Expectations, SuiteCase
from nmpsim.diagnostics import EXIT_BUG, EXIT_OK, EXIT_OVER_BUDGET, EXIT_USER, EXIT_WORSE


def rows(text, heading):
    """Return the first cells of the table below a heading."""
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text
    return [line.split(" | ")[0].strip("| ") for line in part.splitlines() if line[:2] == "| "]


def test_the_suite_of_the_page_runs(project, repository_page):
    (suite,) = re.findall(r"```toml\n(.*?)```", repository_page("docs/check.md"), re.S)
    project.write(suite)
    three = np.load(project.folder / "images" / "3.npy")
    bundle = nmpsim.load(project.folder / "digits.bin")
    np.savez(project.folder / "three.npz", **nmpsim.Device().run(bundle, {"data": three}).outputs)
    assert project.check("--update-baseline").exit_code == 0
    done = project.check("--format", "json")
    assert done.exit_code == 0, done.stdout
    names = [case["name"] for case in json.loads(done.stdout)["cases"]]
    assert names == ["seven", "answers"]


def test_the_page_lists_every_key_of_a_case(repository_page):
    listed = {cell.strip("`") for cell in rows(repository_page("docs/check.md"), "The suite")[2:]}
    own = {field.name for field in attrs.fields(SuiteCase)} - {"expect", "budget"}
    own |= {f"expect.{field.name}" for field in attrs.fields(Expectations)}
    own |= {f"budget.{field.name}" for field in attrs.fields(Budget)}
    assert listed == own


def test_the_page_lists_every_exit_code(repository_page):
    head = repository_page("docs/check.md").split("\n## ")[0]
    codes = [int(cell) for cell in rows(head, "") if cell.isdigit()]
    assert sorted(codes) == sorted({EXIT_OK, EXIT_WORSE, EXIT_USER, EXIT_BUG, EXIT_OVER_BUDGET})


def test_the_page_lists_every_field_of_the_document(project, repository_page):
    page = repository_page("docs/check.md").split("\n## The JSON document\n")[1]
    found = json.loads(project.check("--format", "json").stdout)
    (case,) = found["cases"]
    for record in (found, case, case["checks"][0], case["layers"][0]):
        for name in record:
            assert f"`{name}`" in page, name


def test_the_types_of_the_document_are_unchanged(project):
    """A change of this schema is a change of its version."""
    text, count, maybe = {"type": "string"}, {"type": "integer"}, {"type": ["integer", "null"]}
    changed, place = {"type": ["boolean", "null"]}, {"enum": ["device", "host"]}

    def record(**properties):
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def many(items):
        return {"type": "array", "items": items}

    culprit = record(index=count, name=text, line=count, message=text)
    layer = record(
        index=count,
        name=text,
        op=text,
        line=count,
        placement=place,
        placement_before={"anyOf": [place, {"type": "null"}]},
        cycles=count,
        cycles_before=maybe,
        saturated=count,
        saturated_before=maybe,
        output_changed=changed,
        constants_changed=changed,
        rescale_changed=changed,
        change={"enum": ["regressed", "improved", "unchanged", "unknown"]},
    )
    case = record(
        name=text,
        status={"enum": ["passed", "wrong", "over", "error"]},
        source=text,
        contract={"enum": ["proved", "checked", "violated", "not_checked"]},
        cycles=count,
        cycles_before=maybe,
        device_changes=many(text),
        baseline_version={"type": ["string", "null"]},
        baseline_written={"type": "boolean"},
        core={"anyOf": [{"type": "null"}, record(path=text, position=text)]},
        errors=many(text),
        checks=many(record(name=text, status=text, message=text, culprits=many(culprit))),
        layers=many(layer),
    )
    schema = record(
        schema={"const": "nmpsim-check-6"}, nmpsim=text, exit_code=count, cases=many(case)
    )
    project.write("[dram]\nbytes_per_cycle = 4\n", "board.toml")
    for words in ((), ("--update-baseline",)):
        document = json.loads(project.check("--format", "json", *words).stdout)
        Draft202012Validator(schema).validate(document)
