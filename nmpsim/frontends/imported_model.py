"""What a front end makes of a model's file, or why it makes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from nmpsim.bundle.metadata import Normalization, OperatorMapping
from nmpsim.lir.nodes import Module


class UnsupportedError(Exception):
    """An operation, or this form of it, is not known. The text says what was found."""


class NotConstantError(UnsupportedError):
    """A tensor's values have to be known when the model is compiled, and are not."""

    def __init__(self, name: str, what: str = "an input") -> None:
        super().__init__(f"{name or what} is not a constant")
        self.name = name


@attrs.frozen
class ImportOptions:
    """What a user says of a model, besides its file."""

    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Of inputs, by name, where the file leaves them open."""
    sample_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Of an array for each input, by name (empty for the only one); of an image, height and width.
    They close the dimensions that the file leaves open, but for the first one, the batch."""
    integer_islands: bool | None = None
    """Compute on integers what is float32 in the reference, where that is possible; None: where
    there is no integer reference at all."""
    for_quantization: bool = False
    """The float model is to be quantized: batch norms, and factors and sums with constants, become
    part of the weights before them."""


DEFAULT_IMPORT_OPTIONS = ImportOptions()


@attrs.frozen
class ImportedModel:
    """A model as LIR, and how it goes with its file."""

    module: Module
    """Verified, with its constants and exact scales; inputs and outputs have the names and the
    order of the file."""
    unsigned: frozenset[str]
    """Inputs and outputs that are uint8 or uint16 in the file; the module holds Int8, 128 less, or
    Int16, 32768 less."""
    operators: tuple[OperatorMapping, ...]
    """One for each operation of the file, in its order."""
    numerics: str
    """The arithmetic profile that the file calls for."""
    normalizations: tuple[Normalization, ...] = ()
    """What the file says of inputs that are images."""
    layer_numerics: Mapping[str, str] = MappingProxyType({})
    """Names of layers that it calls for another one for, and which."""
    warnings: tuple[str, ...] = ()
    """What a user should know of it."""
