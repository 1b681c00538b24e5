"""Write the published JSON Schemas: ``python -m nmpsim.views.schemas nmpsim/schemas``.

There is one file for each JSON document of nmpsim, made from the definition of the document.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import attrs

from nmpsim.analysis.diff.document import ReportDifferenceDocument, RunDifferenceDocument
from nmpsim.analysis.explain.document import LayersDocument, ScaleDocument, SchemasDocument
from nmpsim.analysis.lint.document import LintDocument
from nmpsim.analysis.reduce.repro import ReproDocument
from nmpsim.analysis.trace.events import TraceDocument
from nmpsim.bundle.debug import ModuleIndex
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.patch import PatchDocument
from nmpsim.checking.baseline import Baseline
from nmpsim.checking.results import CheckDocument
from nmpsim.debugger.core_dump import AboutDocument
from nmpsim.debugger.script import DebugDocument
from nmpsim.experiments.accuracy_result import EvaluationDocument
from nmpsim.experiments.history import EntryDocument
from nmpsim.frontends.model_origin import ModelOrigin
from nmpsim.quantization.files import TensorFacts
from nmpsim.report.data import RunReport
from nmpsim.report.schema import document_schema
from nmpsim.views.batch_text import RunsDocument
from nmpsim.views.compile_text import CompileDocument
from nmpsim.views.device_table import DeviceDocument
from nmpsim.views.history_text import HistoryDocument
from nmpsim.views.inspect_text import InspectDocument
from nmpsim.views.quantize_text import QuantizeDocument
from nmpsim.views.sweep_text import SweepDocument


@attrs.frozen
class Document:
    """A JSON document, its definition and the command that writes it."""

    name: str
    """Name of the schema file, without ``.json``."""
    written_by: str
    title: str
    definition: Any


DOCUMENTS = (
    Document("report", "nmpsim run --format json", "Report of one run of nmpsim", RunReport),
    Document(
        "runs",
        "nmpsim run --format json, several inputs",
        "Summaries of several runs",
        RunsDocument,
    ),
    Document("check", "nmpsim check --format json", "Results of checks", CheckDocument),
    Document("baseline", "nmpsim check --update-baseline", "Baseline of a run", Baseline),
    Document("compile", "nmpsim compile --format json", "Results of compiling", CompileDocument),
    Document("inspect", "nmpsim inspect --format json", "Contents of a bundle", InspectDocument),
    Document("device", "nmpsim device --format json", "Settings of a device", DeviceDocument),
    Document("lint", "nmpsim lint --format json", "Findings of lint", LintDocument),
    Document(
        "explain",
        "nmpsim explain --format json",
        "Integers behind scales",
        LayersDocument | ScaleDocument | SchemasDocument,
    ),
    Document(
        "diff",
        "nmpsim diff --format json",
        "Two runs, or two reports",
        RunDifferenceDocument | ReportDifferenceDocument,
    ),
    Document("trace", "nmpsim run --trace", "Timeline of units, for Perfetto", TraceDocument),
    Document("debug", "nmpsim debug --format json", "Results of a debugger script", DebugDocument),
    Document("patch", "export of nmpsim debug", "Changes of a bundle", PatchDocument),
    Document("sweep", "nmpsim sweep --format json", "Results of a sweep", SweepDocument),
    Document("eval", "nmpsim eval --format json", "Evaluation on a data set", EvaluationDocument),
    Document("history", "nmpsim history --format json", "History of runs", HistoryDocument),
    Document("history-entry", "nmpsim history, in its folder", "Entry of a history", EntryDocument),
    Document(
        "quantize",
        "nmpsim quantize --format json",
        "Quantization of a float network",
        QuantizeDocument,
    ),
    Document(
        "tensors",
        "nmpsim quantize, next to the LIR",
        "Exact scales of a program's tensors",
        dict[str, TensorFacts],
    ),
    Document("model", "nmpsim quantize, next to the LIR", "Origin of a model", ModelOrigin),
    Document("metadata", "section .nmpsim.meta of a bundle", "Metadata of a bundle", Metadata),
    Document(
        "module", "section .nmpsim.lir.index of a bundle", "Index of a bundle's LIR", ModuleIndex
    ),
    Document("core", "array about of a core file", "Contents of a core file", AboutDocument),
    Document("repro", "nmpsim reduce", "Failing part of a program", ReproDocument),
)


def format_schema(document: Document) -> str:
    """Return the JSON Schema of a document as text."""
    return json.dumps(document_schema(document.definition, document.title), indent=2) + "\n"


def main() -> None:
    """Write the JSON Schemas of all documents to the folder given as argument."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for document in DOCUMENTS:
        (folder / f"{document.name}.json").write_text(format_schema(document), encoding="utf-8")


if __name__ == "__main__":
    main()
