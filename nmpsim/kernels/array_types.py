"""Types of numbers and arrays that kernels take.

In compiled code every integer is an int64; in plain Python it may be an ``int``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Int: TypeAlias = int | np.int64

Int8s: TypeAlias = npt.NDArray[np.int8]
Int16s: TypeAlias = npt.NDArray[np.int16]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = Bytes | Int8s | Int16s | Int32s | Int64s
Float32s: TypeAlias = npt.NDArray[np.float32]
Float64s: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = Integers | Float32s | Float64s
Kind: TypeAlias = type | tuple[np.dtype[Any], int]
"""Type of an argument other than a number: a named tuple, or an array's dtype and dimensions."""
Records: TypeAlias = np.recarray[Any, Any]
"""Array of one of the record types of :mod:`nmpsim.core.state`."""
