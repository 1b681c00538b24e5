"""Which arithmetic the host has where the device does not do an operation.

It lands here because the device has no unit for it, or because its operands overlap; the second
must give the bits that the device would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmpsim.kernels.hostops.formulas import ELEMENTWISE

GLOW = frozenset({"glow-int", "glow-float"})
TORCH = frozenset({"float-fbgemm", "float-qnnpack", "float-onednn"})
KNOWN = GLOW | TORCH | {"nmp", "q31", "float"}

MOVES_OR_COMPARES = frozenset(
    {
        "argmax",
        "argmin",
        "batchedreducemax",
        "batchedreducemin",
        "batchonehot",
        "bucketize",
        "convertto",
        "flip",
        "gather",
        "gatherelements",
        "gathernd",
        "gatherranges",
        "nonmaxsuppression",
        "nonzero",
        "spacetodepth",
        "topk",
    }
)
"""Operations on the host that take values as they are, or tell where they lie."""
_SAME_FOR_ALL = MOVES_OR_COMPARES | frozenset(
    {
        "avgpool",
        "copy",
        "dequantize",
        "extracttensor",
        "inserttensor",
        "intlookuptable",
        "maxpool",
        "maxpoolwithargmax",
        "quantize",
        "resizenearest",
        "softmax",
        "splat",
        "touch",
        "transpose",
    }
)
"""Operations that no profile changes, or that know all (``quantize``, ``avgpool``)."""
_WITH_WEIGHTS = frozenset(
    {
        "channelwisequantizedconvolution",
        "convolution",
        "fullyconnected",
        "rowwisequantizedfullyconnected",
    }
)
_HOST_ONLY = frozenset(
    {
        "batchedreduceadd",
        "elementcmpeq",
        "elementcmplt",
        "elementcmplte",
        "elementcmpneq",
        "elementdiv",
        "elementselect",
        "adaptiveavgpool",
        "batchnormalization",
        "convolution3d",
        "resizebilinear",
        "scatterdata",
        *(row.opcode for row in ELEMENTWISE),
    }
)
"""Operations that calculate and that the device has no unit for."""


def numerics_mismatch(opcode: str, dtypes: Sequence[np.dtype[Any]], numerics: str) -> str | None:
    """Why the host cannot follow ``numerics`` in an operation, or None.

    Profile ``nmp`` says nothing of operations without a unit, which then are Glow's; Int8 ones
    without a bias are those of ``glow-int``.
    """
    if numerics not in KNOWN:
        return f"there are no numerics {numerics}"
    narrow = any(dtype.name in ("int8", "int16") for dtype in dtypes)
    if numerics in GLOW or opcode in _SAME_FOR_ALL or not narrow:
        return None
    if numerics == "q31" and opcode == "rescalequantized":
        return None
    if numerics == "nmp" and (
        opcode in _HOST_ONLY or (opcode not in _WITH_WEIGHTS and dtypes[0].name == "int8")
    ):
        return None
    return f"the host has no {numerics} arithmetic for {opcode}"
