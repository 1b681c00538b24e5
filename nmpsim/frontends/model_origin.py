"""Model metadata stored next to LIR text that was made from a model file: ``X.model.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import attrs

from nmpsim.bundle import limits
from nmpsim.bundle.metadata import Normalization, OperatorMapping
from nmpsim.bundle.schema import format_record, parse_record_file
from nmpsim.diagnostics import Place
from nmpsim.frontends.imported_model import ImportedModel
from nmpsim.input_files import MAX_TEXT_BYTES, read_bytes
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.constants import replace_lir_suffix
from nmpsim.lir.nodes import Module
from nmpsim.report.fields import WrittenBefore

SCHEMA: Final = "nmpsim-model-2"
SUFFIX = ".model.json"


@attrs.frozen
class ModelMetadata:
    """Metadata of a model file: how each operator was compiled, and input normalizations."""

    operators: Annotated[tuple[OperatorMapping, ...], limits.LAYERS]
    """How each operator of the model file was compiled, in the order of the file."""
    normalizations: Annotated[tuple[Normalization, ...], limits.TENSORS] = ()
    """Normalization of image inputs, as given in the model file."""

    @property
    def schema(self) -> Annotated[Literal["nmpsim-model-2"], WrittenBefore("operators")]:
        """Name and version of the schema that the JSON document follows."""
        return SCHEMA

    def to_json(self) -> bytes:
        """Return the metadata as a JSON document in bytes."""
        return format_record(self, SCHEMA) + b"\n"


def read_model_metadata(lir: Path) -> ModelMetadata | None:
    """Read the metadata file next to an LIR file, or return None if there is no such file.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, CONST004 if it is not valid.
    """
    path = replace_lir_suffix(lir, SUFFIX)
    if path is None or not path.is_file():
        return None
    data = read_bytes(path, "file", MAX_TEXT_BYTES)
    message = "the model metadata file is invalid"
    hint = "Quantize the model again, or delete the file."
    return parse_record_file(
        data, ModelMetadata, SCHEMA, Place(str(path)), "CONST004", message, hint
    )


def make_imported_model(module: Module, origin: ModelMetadata | None = None) -> ImportedModel:
    """Return an ImportedModel of an LIR module, with the metadata of its model file if given."""
    operators, normalizations = (origin.operators, origin.normalizations) if origin else ((), ())
    return ImportedModel(module, frozenset(), operators, DEFAULT_NUMERICS, normalizations)
