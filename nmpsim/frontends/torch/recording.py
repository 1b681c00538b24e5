"""Recorded run of a PyTorch model, as plain data that does not need PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ENGINE_PROFILES = {
    "fbgemm": "float-fbgemm",
    "onednn": "float-onednn",
    "qnnpack": "float-qnnpack",
    "x86": "float-fbgemm",  # for operations without weights
}
"""Quantized engine of PyTorch -> numerics profile."""
TABLE = "nmpsim.table"
"""Operation that stands for a function of one tensor between conversions of PT2E."""
CHANNEL_BLOCK = 64
"""Number of adjacent channels that PyTorch concatenates at once."""


@attrs.frozen(eq=False)
class RecordedTensor:
    """Tensor of a recorded run: shape, element type, quantization and constant values."""

    number: int
    """Unique number of the tensor."""
    dtype: str
    """PyTorch's name without ``torch.``: quint8, float32."""
    shape: tuple[int, ...]
    scale: float | None = None
    """None if it is not quantized, or per channel."""
    zero_point: int = 0
    channels_last: bool = False
    """Whether an image's channels are adjacent in memory, which selects PyTorch's kernel."""
    values: Array | None = None
    """Values of a constant, or of any tensor if values are kept; the integers if quantized."""
    name: str = ""
    """Path of a parameter in the model."""
    contiguous: bool = True
    """Whether the elements are in memory in the order of the dimensions."""


@attrs.frozen(eq=False)
class QuantizedWeights:
    """Weights, bias and window of a quantized PyTorch layer."""

    weights: npt.NDArray[np.int8]
    """[O, I/groups, kernel height, kernel width] or [O, I]."""
    scales: npt.NDArray[np.float32]
    """[O] if ``is_per_channel``, otherwise [1]."""
    zero_points: npt.NDArray[np.int64]
    """As many as scales."""
    is_per_channel: bool
    bias: npt.NDArray[np.float32] | None
    """[O]."""
    engine: str
    """Engine whose arithmetic the layer follows: fbgemm, qnnpack or onednn."""
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


@attrs.frozen(eq=False)
class RecordedCall:
    """Call of a PyTorch operation in a recorded run."""

    number: int
    operation: str
    """Namespace and name: ``quantized.conv2d_relu``."""
    name: str
    """Path of the calling module, as in ``model.named_modules()``."""
    arguments: Mapping[str, Any]
    """Argument name in the schema -> RecordedTensor, QuantizedWeights, number, string, None, or a
    tuple of these."""
    results: tuple[RecordedTensor, ...]
    tables: tuple[npt.NDArray[Any], ...] = ()
    """[256] of uint8, or int8 for TABLE: one for an elementwise function; for a concatenation two
    for each input, of single channels and of channels in a ``CHANNEL_BLOCK``."""

    @property
    def label(self) -> str:
        """Text for messages: number, operation and module of the call."""
        return f"{self.number} {self.operation} {self.name}"


@attrs.frozen(eq=False)
class ModelRecording:
    """Recording of a PyTorch model's run: inputs, outputs and operation calls."""

    name: str
    """Class of the model."""
    engine: str
    """``torch.backends.quantized.engine``."""
    inputs: tuple[tuple[str, RecordedTensor], ...]
    """Inputs, named as the parameters of ``forward``."""
    outputs: tuple[tuple[str, RecordedTensor], ...]
    calls: tuple[RecordedCall, ...]
    """Operations on which the outputs depend, in order."""
