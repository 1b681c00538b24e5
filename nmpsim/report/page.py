"""Fill the tables of ``docs/report.md``: ``python -m nmpsim.report.page docs/report.md``.

A table whose head is ``| field | meaning |``, in a section that is named as an object of the
report, lists the fields of its definition. All else on the page is written there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from nmpsim.report.data import RunReport
from nmpsim.report.fields import bare, fields_of, is_record
from nmpsim.report.schema import object_name

_HEAD = "| field | meaning |\n| --- | --- |\n"
_SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.M | re.S)
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")


def filled(page: str) -> str:
    """The page with its tables as the definitions say."""
    titles = {f"`{object_name(one)}`": one for one in _records(RunReport)}
    titles["The run"] = RunReport

    def section(found: re.Match[str]) -> str:
        definition = titles.get(found[0].splitlines()[0].removeprefix("## "))
        return found[0] if definition is None else _TABLE.sub(lambda _: table(definition), found[0])

    return _SECTION.sub(section, page)


def table(definition: type) -> str:
    """The fields of a record as a table in Markdown."""
    rows = [f"| `{field.key}` | {field.description} |\n" for field in fields_of(definition)]
    return _HEAD + "".join(rows)


def _records(kind: Any) -> Iterator[type]:
    """The records that values of a type hold, and those that these hold."""
    if is_record(bare(kind)):
        yield bare(kind)
        for field in fields_of(bare(kind)):
            yield from _records(field.kind)
    for one in get_args(bare(kind)):
        yield from _records(one)


def main() -> None:
    """Print the page."""
    sys.stdout.write(filled(Path(sys.argv[1]).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
