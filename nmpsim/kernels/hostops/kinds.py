"""Sets of element kinds, by the name of their dtype, that operations take."""

from __future__ import annotations

Kinds = frozenset[str]

FLOAT: Kinds = frozenset({"float32"})
INT8: Kinds = frozenset({"int8"})
INT16: Kinds = frozenset({"int16"})
NARROW = INT8 | INT16
QUANTIZED = NARROW | {"int32"}
BIAS = QUANTIZED | {"int64"}
INDEX: Kinds = frozenset({"int32", "int64"})
BOOL: Kinds = frozenset({"bool"})
REAL = FLOAT | NARROW
NUMBER = REAL | INDEX
ANY = NUMBER | BOOL | {"uint8", "float64", "float16", "uint16"}
