"""Reader of the input normalizations in the metadata of a TFLite file.

The tables are those of TensorFlow Lite Support's ``metadata_schema.fbs``; the few fields needed are
read by their numbers, without a package.
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
"""Kind of a process unit."""
_MEAN, _STD = 0, 1


def read_normalizations(
    data: bytes, check_length: Callable[[int], int]
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Read each model input's means and standard deviations from a file's metadata.

    Parameters
    ----------
    data : bytes
        The metadata buffer; one of another version gives no inputs.
    check_length : callable
        Returns a vector's length; raises an error if the file cannot contain as much.

    Raises
    ------
    Exception
        Any exception of reading a damaged flatbuffer.
    """
    if data[4:8] != IDENTIFIER:
        return []
    root = Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
    subgraph = next(_tables(root, _SUBGRAPHS, check_length), None)
    inputs = [] if subgraph is None else _tables(subgraph, _INPUTS, check_length)
    return [_normalization(one, check_length) for one in inputs]


def _normalization(
    tensor: Table, check_length: Callable[[int], int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    for unit in _tables(tensor, _PROCESS_UNITS, check_length):
        kind, options = unit.Offset(_field(_KIND)), unit.Offset(_field(_OPTIONS))
        is_one = kind and unit.Get(number_types.Uint8Flags, kind + unit.Pos) == _NORMALIZATION
        if is_one and options:
            table = Table(unit.Bytes, unit.Indirect(options + unit.Pos))
            return _floats(table, _MEAN, check_length), _floats(table, _STD, check_length)
    return (), ()


def _field(number: int) -> int:
    """Return the offset of a field in a table's vtable."""
    return 4 + 2 * number


def _tables(table: Table, field: int, check_length: Callable[[int], int]) -> Iterator[Table]:
    at = table.Offset(_field(field))
    if at:
        start = table.Vector(at)
        for index in range(check_length(table.VectorLen(at))):
            yield Table(table.Bytes, table.Indirect(start + 4 * index))


def _floats(table: Table, field: int, check_length: Callable[[int], int]) -> tuple[float, ...]:
    at = table.Offset(_field(field))
    if not at:
        return ()
    start = table.Vector(at)
    places = range(start, start + 4 * check_length(table.VectorLen(at)), 4)
    return tuple(float(table.Get(number_types.Float32Flags, place)) for place in places)
