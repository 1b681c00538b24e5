"""What the metadata of a TFLite file say of its inputs: how pixels become values.

The tables are those of TensorFlow Lite Support's ``metadata_schema.fbs``, for which no package is
needed: of each only a few fields are read, by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flatbuffers import encode, number_types
from flatbuffers.table import Table

NAME = b"TFLITE_METADATA"
IDENTIFIER = b"M001"
_SUBGRAPHS = 3
_INPUTS = 2
_PROCESS_UNITS = 4
_KIND, _OPTIONS = 0, 1
_NORMALIZATION = 1
"""Of the kinds of process units."""
_MEAN, _STD = 0, 1


def normalizations(
    data: bytes, count: Callable[[int], int]
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Mean and standard deviation by input; empty where there are none, as in another version.

    Args:
        data: the buffer of this name.
        count: takes a vector's length, and raises if the file cannot hold as much.

    Raises:
        Exception: what reading a damaged flatbuffer raises.
    """
    if data[4:8] != IDENTIFIER:
        return []
    root = Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
    subgraph = next(_tables(root, _SUBGRAPHS, count), None)
    inputs = [] if subgraph is None else _tables(subgraph, _INPUTS, count)
    return [_normalization(one, count) for one in inputs]


def _normalization(
    tensor: Table, count: Callable[[int], int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    for unit in _tables(tensor, _PROCESS_UNITS, count):
        kind, options = unit.Offset(_field(_KIND)), unit.Offset(_field(_OPTIONS))
        is_one = kind and unit.Get(number_types.Uint8Flags, kind + unit.Pos) == _NORMALIZATION
        if is_one and options:
            table = Table(unit.Bytes, unit.Indirect(options + unit.Pos))
            return _floats(table, _MEAN, count), _floats(table, _STD, count)
    return (), ()


def _field(number: int) -> int:
    """Where a field stands in a table's vtable."""
    return 4 + 2 * number


def _tables(table: Table, field: int, count: Callable[[int], int]) -> Iterator[Table]:
    at = table.Offset(_field(field))
    if at:
        start = table.Vector(at)
        for index in range(count(table.VectorLen(at))):
            yield Table(table.Bytes, table.Indirect(start + 4 * index))


def _floats(table: Table, field: int, count: Callable[[int], int]) -> tuple[float, ...]:
    at = table.Offset(_field(field))
    if not at:
        return ()
    start = table.Vector(at)
    places = range(start, start + 4 * count(table.VectorLen(at)), 4)
    return tuple(float(table.Get(number_types.Float32Flags, place)) for place in places)
