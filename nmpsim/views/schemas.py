"""Write the published JSON Schemas: ``python -m nmpsim.views.schemas nmpsim/schemas``.

There is one file for each JSON document of nmpsim, made from the definition of the document, which
``schemas.toml`` names.
"""

from __future__ import annotations

import json
import operator
import sys
import tomllib
from functools import reduce
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import attrs

from nmpsim.report.schema import make_document_schema


@attrs.frozen
class SchemaDocument:
    """JSON document with its schema name, its definition and the command that writes it."""

    name: str
    """Name of the schema file, without ``.json``."""
    written_by: str
    title: str
    definitions: list[str]
    """Paths of the classes of which the document is one."""
    by_name: bool = False
    """Whether the document maps names to objects of the class."""

    @property
    def definition(self) -> Any:
        """Type that defines the document."""
        found = reduce(operator.or_, map(resolve_name, self.definitions))
        return dict[str, found] if self.by_name else found  # type: ignore[valid-type]


DOCUMENTS = tuple(
    SchemaDocument(name, **entry)
    for name, entry in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
)


def format_schema(document: SchemaDocument) -> str:
    """Format the JSON Schema of a document as text."""
    return json.dumps(make_document_schema(document.definition, document.title), indent=2) + "\n"


def main() -> None:
    """Write the JSON Schemas of all documents to the folder given as argument."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for document in DOCUMENTS:
        (folder / f"{document.name}.json").write_text(format_schema(document), encoding="utf-8")


if __name__ == "__main__":
    main()
