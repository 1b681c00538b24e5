"""Reference pages list everything that the code defines."""

import re

import pytest

from nmpsim.config import SETTINGS, SOURCES, default_device
from nmpsim.diagnostics import (
    CODES,
    EXIT_BUG,
    EXIT_INCOMPLETE,
    EXIT_OK,
    EXIT_OVER_BUDGET,
    EXIT_TIMEOUT,
    EXIT_USER,
    EXIT_WORSE,
)
from nmpsim.kernels.saturation_stages import STAGE_NAMES
from nmpsim.report.device_use import ACTIVITIES
from nmpsim.report.json import make_report_schema
from nmpsim.report.schema import fill_tables
from nmpsim.views.schemas import DOCUMENTS


def section(text, title):
    """Return the text below a heading of the second level."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found


def field_names(schema):
    """Yield the names of an object's properties, nested ones as ``outer.inner``."""
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from (f"{name}.{deeper}" for deeper in field_names(inner))
        else:
            yield name


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("The run", None),
        ("`output`", "output"),
        ("`layer`", "layer"),
        ("`saturation`", "saturation"),
        ("`shadow`", "shadow"),
        ("`float_weight`", "float_weight"),
        ("`shadow_layer`", "shadow_layer"),
        ("`split`", "split"),
        ("`error_size`", "error_size"),
        ("`histogram`", "histogram"),
        ("`memory_block`", "memory_block"),
        ("`timeline`", "timeline"),
        ("`trap`", "trap"),
    ],
)
def test_the_report_page_has_every_field(page, rows, title, name):
    schema = make_report_schema() if name is None else make_report_schema()["$defs"][name]
    table = section(page("docs/report.md"), title).split("\n\n| stage |")[0]
    named = [field for row in rows(table)[2:] for field in re.findall(r"`([\w.]+)`", row[0])]
    assert named == list(field_names(schema))


def test_the_report_page_has_every_object(page):
    objects = {name for name, d in make_report_schema()["$defs"].items() if "properties" in d}
    assert objects == set(re.findall(r"^## `(\w+)`$", page("docs/report.md"), re.M))


def test_the_tables_of_the_report_page_are_the_definitions(page):
    text = page("docs/report.md")
    assert fill_tables(text) == text
    assert fill_tables(text.replace("| position in the list, from 0 |", "| |")) == text


def test_every_field_of_the_report_has_a_description():
    schema = make_report_schema()
    for one in (schema, *schema["$defs"].values()):
        for name, value in one.get("properties", {}).items():
            assert value["description"], name


def test_the_report_page_has_every_stage_and_activity(page, rows):
    text = page("docs/report.md")
    stages = [row[0] for row in rows(text.split("| stage | what saturated |")[1])[1:]]
    assert stages[: len(STAGE_NAMES) + 1] == [f"`{name}`" for name in ("input", *STAGE_NAMES)]
    assert all(f"`{activity}`" in text for activity in ACTIVITIES)


def test_the_page_of_schemas_has_every_document(page, rows):
    listed = [(row[0], row[1].replace("`", "")) for row in rows(page("docs/schemas.md"))[2:]]
    assert listed == [(f"`{one.name}.json`", one.written_by) for one in DOCUMENTS]


def test_the_device_page_has_every_setting(page, rows):
    text = page("docs/device-file.md")
    found = {
        f"{section[2:-2]}_{key[1:-1]}": (default, allowed)
        for section, key, default, allowed, _ in (row for row in rows(text) if len(row) == 5)
        if section.startswith("`[")
    }
    expected = {
        name: (str(getattr(default_device(), name)), f"{limit.low} to {limit.high}")
        for name, limit in SETTINGS.items()
    }
    assert found == expected
    assert all(f"`{source}`" in text for source in SOURCES)


def test_the_example_of_a_device_file_loads(page, tmp_path):
    from nmpsim import load_device

    (example,) = re.findall(r"```toml\n(.*?)```", page("docs/device-file.md"), re.S)
    path = tmp_path / "d.toml"
    path.write_text(example, encoding="utf-8")
    device = load_device(path)
    assert (device.name, device.cores_count, device.dram_bytes_per_cycle) == ("half", 16, 8)
    assert device.sources["dram_bytes_per_cycle"] == "measured"
    assert device.sources["dram_latency_cycles"] == "given"


def test_the_error_page_has_every_code(page, rows):
    from nmpsim.cli.guard import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED

    table = rows(page("docs/errors.md"))
    titles = [tuple(row) for row in table if re.fullmatch(r"[A-Z]+\d{3}", row[0])]
    assert titles == list(CODES.items())
    exits = [int(row[0]) for row in table if row[0].isdigit()]
    known = [
        EXIT_OK,
        EXIT_WORSE,
        EXIT_USER,
        EXIT_BUG,
        EXIT_OVER_BUDGET,
        EXIT_INCOMPLETE,
        EXIT_TIMEOUT,
        EXIT_INTERRUPTED,
        EXIT_BROKEN_PIPE,
    ]
    assert exits == known


def test_links_have_targets(repository):
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    for path in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_files_of_the_reading_guide_exist(page, repository):
    rooms = [path for name in ("nmpsim", "tests") for path in (repository / name).rglob("*/")]
    homes = [repository, repository / "nmpsim", *rooms]
    named = re.findall(r"`([\w./-]+(?:\.py|\.s|\.toml|\.yml|/))`", page("docs/reading-guide.md"))
    assert len(named) > 20
    for name in named:
        assert any((home / name).exists() for home in homes), name


def test_the_reading_guide_names_every_package(page, repository):
    text = page("docs/reading-guide.md")
    packages = [path.parent.name for path in (repository / "nmpsim").glob("*/__init__.py")]
    assert [name for name in packages if not re.search(rf"`(nmpsim/)?{name}/", text)] == []


def test_the_writing_standard_shows_names_of_the_code(page, repository):
    examples = page("docs/writing.md").split("## Examples")[1].split("| docstring")[0]
    names = re.findall(r"`(\w+)`", examples)
    assert len(names) >= 12
    paths = list((repository / "nmpsim").rglob("*.py"))
    words = {word for path in paths for word in re.findall(r"\w+", path.read_text("utf-8"))}
    assert [name for name in names if name not in words] == []
