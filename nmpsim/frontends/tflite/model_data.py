"""TFLite models as plain data: tensors, operators, signatures and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Shape

VARIABLE_OPERATORS = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
"""Operators on variables, of which the first and the last have no results."""


@attrs.frozen(eq=False)
class TFLiteTensor:
    """Tensor of a TFLite model: shape, element type, quantization and constant values."""

    index: int
    name: str
    shape: Shape
    dtype: str
    """NumPy name, or int4."""
    scales: npt.NDArray[np.float32]
    """[1], one for each index of ``axis``, or [0] if it is not quantized."""
    zero_points: npt.NDArray[np.int64]
    """As many as scales."""
    axis: int
    values: Array | None
    """Values of a constant: a read-only view of the file if aligned; int4 is widened to int8."""
    shape_signature: Shape
    """Shape with -1 for sizes that the file leaves open."""

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor has scales and zero points."""
        return self.scales.size > 0 and self.dtype not in ("float32", "float16", "bool")


@attrs.frozen(eq=False)
class TFLiteOperator:
    """Operator of a TFLite model: name, inputs, outputs and options."""

    index: int
    name: str
    """Name in the schema: CONV_2D."""
    inputs: tuple[TFLiteTensor | None, ...]
    """None for an optional input that is left out."""
    outputs: tuple[TFLiteTensor, ...]
    options: Mapping[str, Any]
    """Name in the schema -> value, by default that of the schema."""


@attrs.frozen(eq=False)
class TFLiteState:
    """State of a TFLite model: a variable that is kept from one run to the next."""

    name: str
    """Name of the variable."""
    tensor: TFLiteTensor
    """Tensor that has the value before a run."""
    value: TFLiteTensor
    """Tensor that has the value after a run."""
    initial: Array
    assignment: TFLiteOperator
    """ASSIGN_VARIABLE that sets the value."""


@attrs.frozen(eq=False)
class TFLiteSignature:
    """Signature of a TFLite model: its key, and its names of inputs and outputs of the model."""

    key: str
    inputs: Mapping[str, TFLiteTensor]
    outputs: Mapping[str, TFLiteTensor]


@attrs.frozen(eq=False)
class TFLiteModel:
    """TFLite model: tensors, operators, inputs and outputs of the file's main subgraph."""

    tensors: tuple[TFLiteTensor, ...]
    operators: tuple[TFLiteOperator, ...]
    inputs: tuple[TFLiteTensor, ...]
    outputs: tuple[TFLiteTensor, ...]
    normalizations: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    """Means and deviations of each input in the metadata, empty if it has none."""
    signatures: tuple[TFLiteSignature, ...] = ()
    states: tuple[TFLiteState, ...] = ()
    """State tensors in place of variables."""
    variable_operators: tuple[TFLiteOperator, ...] = ()
    """Operators on variables, which ``operators`` does not contain."""

    @property
    def open_inputs(self) -> tuple[TFLiteTensor, ...]:
        """Inputs with open dimensions after the first one, the batch."""
        return tuple(one for one in self.inputs if min(one.shape_signature[1:], default=0) < 0)


def decode_text(value: bytes | None) -> str:
    """Return a string of a flatbuffer as text, empty if it is missing."""
    return value.decode("utf-8", "backslashreplace") if value else ""
