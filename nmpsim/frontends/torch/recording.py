"""What a PyTorch model did with its example, as plain data: nothing here needs PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

POINTWISE = frozenset(
    {
        "aten.clamp",
        "aten.elu",
        "aten.hardsigmoid",
        "aten.hardswish",
        "aten.hardtanh",
        "aten.leaky_relu",
        "aten.relu",
        "aten.sigmoid",
        "aten.tanh",
        "aten.threshold",
        "quantized.add_scalar",
        "quantized.add_scalar_relu",
        "quantized.elu",
        "quantized.hardswish",
        "quantized.leaky_relu",
        "quantized.mul_scalar",
        "quantized.mul_scalar_relu",
        "quantized.relu6",
        "quantized.sigmoid",
        "quantized.threshold",
    }
)
"""Functions of one 8-bit value: PyTorch itself is asked for all 256 results."""

JOINING = frozenset({"aten.cat", "quantized.cat", "quantized.cat_relu"})
"""Their parts come from other scales, each by tables of its own."""

PROFILES = {
    "fbgemm": "float-fbgemm",
    "onednn": "float-onednn",
    "qnnpack": "float-qnnpack",
    "x86": "float-fbgemm",  # of all that has no weights
}
"""Engine -> arithmetic profile."""
BLOCK = 64
"""Channels that lie next to each other and that PyTorch joins at once."""


@attrs.frozen(eq=False)
class Tensor:
    """One tensor of the recorded run."""

    number: int
    """Each has its own."""
    dtype: str
    """As PyTorch has it, without the ``torch.``: quint8, float32."""
    shape: tuple[int, ...]
    scale: float | None = None
    """None if it is not quantized, or has one a channel."""
    zero_point: int = 0
    """As PyTorch has it."""
    channels_last: bool = False
    """Whether the channels of an image lie next to each other, which chooses PyTorch's kernel."""
    values: Array | None = None
    """Of a tensor that does not depend on the inputs; of a quantized one its integers."""
    name: str = ""
    """Of a parameter: its place in the model."""


@attrs.frozen(eq=False)
class Packed:
    """The weights of a quantized layer."""

    weights: npt.NDArray[np.int8]
    """[O, I/groups, kernel height, kernel width] or [O, I]"""
    scales: npt.NDArray[np.float32]
    """[O] if ``by_channel``, else [1]"""
    zero_points: npt.NDArray[np.int64]
    """Likewise."""
    by_channel: bool
    bias: npt.NDArray[np.float32] | None
    """[O]"""
    engine: str
    """fbgemm, qnnpack or onednn: whose arithmetic the layer follows."""
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


@attrs.frozen(eq=False)
class Call:
    """One operation of PyTorch's that the run has done."""

    number: int
    operation: str
    """Namespace and name: ``quantized.conv2d_relu``."""
    name: str
    """Of the module that did it, as ``model.named_modules()`` has it."""
    arguments: Mapping[str, Any]
    """By their names in the schema: a Tensor, Packed, number, text, None, or a tuple of them."""
    results: tuple[Tensor, ...]
    tables: tuple[npt.NDArray[np.uint8], ...] = ()
    """uint8 [256]: one of a ``POINTWISE`` operation; two for each part of a ``JOINING`` one, of
    single channels and of channels in a ``BLOCK``."""

    @property
    def node(self) -> str:
        """For a reader: number, operation, and the module."""
        return f"{self.number} {self.operation} {self.name}"


@attrs.frozen(eq=False)
class Recorded:
    """A model's run."""

    name: str
    """The model's class."""
    engine: str
    """``torch.backends.quantized.engine``."""
    inputs: tuple[tuple[str, Tensor], ...]
    """By the names that ``forward`` gives them."""
    outputs: tuple[tuple[str, Tensor], ...]
    calls: tuple[Call, ...]
    """Those that the outputs depend on, in their order."""
