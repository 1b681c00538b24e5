"""The result of importing a model, the import options, and the errors of unsupported models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

import attrs

from nmpsim.bundle import limits
from nmpsim.bundle.metadata import Normalization, OperatorMapping
from nmpsim.bundle.schema import format_record, parse_record_file
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.input_files import MAX_TEXT_BYTES, read_bytes
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.constants import replace_lir_suffix
from nmpsim.lir.nodes import Module
from nmpsim.report.fields import WrittenBefore

TFLITE_IDENTIFIER = b"TFL3"
"""Bytes 4 to 7 of a TFLite file."""


class UnsupportedError(Exception):
    """Exception for an operator whose kind, attributes or types cannot be compiled."""

    def __init__(self, found: str, expected: str | None = None) -> None:
        super().__init__(found)
        self.expected = expected
        """Supported types, shapes or values, as text for the message."""


class NotConstantError(UnsupportedError):
    """Exception for a tensor that must be a constant but is not."""

    def __init__(self, name: str, description: str = "an input") -> None:
        super().__init__(f"{name or description} is not a constant", "a constant")
        self.name = name


def require(condition: object, found: str, expected: str | None = None) -> None:
    """Raise UnsupportedError with texts ``found`` and ``expected`` unless a condition is true."""
    if not condition:
        raise UnsupportedError(found, expected)


@attrs.frozen
class ImportOptions:
    """Options for importing a model file: input shapes, integer islands and folding."""

    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Input name -> shape, for inputs whose shape the file leaves open."""
    sample_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Input name (empty for the only input) -> shape of an array of samples; height and width for
    an image. They fix dimensions that the file leaves open, except the first one, the batch."""
    integer_islands: bool | None = None
    """Whether to compute on integers what the reference computes in float32, where possible. None:
    only for models that have no integer reference."""
    for_quantization: bool = False
    """Whether the float model will be quantized: batch norms, and products and sums with constants,
    are then folded into the weights before them."""


DEFAULT_IMPORT_OPTIONS = ImportOptions()


def make_onnx_option_error(options: ImportOptions, place: Place, file_kind: str) -> UserError:
    """Return the UserError (ARG001) for an ONNX option that is used with a non-ONNX file."""
    name = "--input-shape" if options.input_shapes else "--integer-islands"
    return fail(
        "ARG001",
        f"{name} applies to ONNX models only",
        place=place,
        found=f"{name} with {file_kind}",
        expected="an ONNX model",
        hint=f"Leave out {name}.",
    )


@attrs.frozen
class ImportedModel:
    """Model imported as LIR, with its operator mapping, unsigned tensors and numerics profile."""

    module: Module
    """Verified, with constants and exact scales; inputs and outputs have the names and the order of
    the file."""
    unsigned: frozenset[str]
    """Inputs and outputs that are uint8 or uint16 in the file; the module stores them as Int8
    (128 less) or Int16 (32768 less)."""
    operators: tuple[OperatorMapping, ...]
    """One for each operator of the file, in its order."""
    numerics: str
    """Numerics profile of the file's reference."""
    normalizations: tuple[Normalization, ...] = ()
    """Normalization of image inputs, as given in the file."""
    layer_numerics: Mapping[str, str] = MappingProxyType({})
    """Layer name -> numerics profile, for layers that differ from ``numerics``."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user."""


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
