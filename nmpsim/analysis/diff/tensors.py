"""What two runs are compared by: tensors by the names of LIR instructions, in any program."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.lir.nodes import TensorType

Array = npt.NDArray[Any]

_NUMBERED = re.compile(r"(?:act/)?(\d{1,9}):([^:]+)(?::(.+))?")
_NO_RESULTS = ("const/", "input/")
_OUTPUT = "output/"


@attrs.frozen(eq=False)
class Values:
    """Elements, and how well they are known."""

    shape: tuple[int, ...]
    array: Array
    """The first elements in row-major order, flat: all, or as many as somebody printed."""
    tolerance: float | Array = 0.0
    """Half a unit of the last printed digit of each number, 0 where all bits are known."""
    is_typed: bool = True
    """False if the array's type (float64) is not that of the tensor."""

    @property
    def is_whole(self) -> bool:
        """True if every element is known."""
        return self.array.size == math.prod(self.shape)

    @classmethod
    def of(cls, array: Array) -> Values:
        """All elements of an array, exactly."""
        return cls(array.shape, array.reshape(-1))


@attrs.frozen(eq=False)
class Tensor:
    """A tensor of a run; its elements are read when somebody wants them."""

    name: str
    """Of the LIR instruction."""
    operand: str | None
    """Which of its operands; None for its result."""
    is_result: bool
    type: TensorType | None
    load: Callable[[], Values]
    number: int | None = None
    """Of the LIR instruction, where it is known."""


def saved_tensors(keys: Iterable[str], read: Callable[[str], Array]) -> Iterator[Tensor]:
    """Results of a run in an ``.npz`` file.

    Keys are ``NNNN:name`` (``--save-layers``), ``act/NNNN:name:operand`` (a recorded run of Glow)
    or just names (``--save-outputs``); constants and inputs are no results.
    """
    seen = set()
    for key in keys:
        if key.startswith(_NO_RESULTS):
            continue
        match = _NUMBERED.fullmatch(key)
        number, name, operand = match.groups() if match else (None, key, None)
        name = name.removeprefix(_OUTPUT)
        yield Tensor(
            name=name,
            operand=operand,
            is_result=name not in seen,
            type=None,
            load=partial(_load, read, key),
            number=None if number is None else int(number),
        )
        seen.add(name)


def _load(read: Callable[[str], Array], key: str) -> Values:
    return Values.of(read(key))
