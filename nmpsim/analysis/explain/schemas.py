"""Which quantization schema fits a range: Glow's four, at Int8 and Int16."""

from __future__ import annotations

import attrs

from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.quantization.parameters import SCHEMAS, Schema, choose_parameters

ELEMS = ("i8", "i16")


@attrs.frozen
class SchemaFit:
    """What a schema makes of a range of real numbers."""

    schema: Schema
    elem: str
    scale: float
    """The step between two integers; a float32."""
    offset: int
    low: float
    """The real number of the lowest integer."""
    high: float
    use: float
    """Part of the representable range that the asked one fills, 0 to 1."""


def fit_schemas(low: float, high: float) -> tuple[SchemaFit, ...]:
    """Scale and offset that Glow chooses for ``low`` to ``high``, for each schema and precision.

    Glow widens the range to hold zero, and so does ``use``.
    """
    return tuple(_fit(low, high, schema, elem) for elem in ELEMS for schema in SCHEMAS)


def _fit(low: float, high: float, schema: Schema, elem: str) -> SchemaFit:
    chosen = choose_parameters(low, high, schema, elem)
    scale, offset = float(chosen.scale), int(chosen.offset)
    bits = 8 * ELEM_DTYPES[elem].itemsize
    bottom, top = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    represented = (scale * (bottom - offset), scale * (top - offset))
    span = represented[1] - represented[0]
    held = min(max(high, 0.0), represented[1]) - max(min(low, 0.0), represented[0])
    return SchemaFit(schema, elem, scale, offset, *represented, held / span)
