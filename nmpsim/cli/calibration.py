"""``--calibration``: samples for the ranges of a float network, from arrays, images and folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.bundle.metadata import Tensor
from nmpsim.cli.arrays import ArrayFile, StoredArray
from nmpsim.cli.guard import say
from nmpsim.cli.inputs import PREFIX, is_array_file, samples_of, split_argument
from nmpsim.cli.samples import Taker
from nmpsim.host_memory import Part, check_memory
from nmpsim.quantization import float_inputs

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.cli.input_options import GivenInputs
    from nmpsim.frontends import ImportedModel

    Array = npt.NDArray[Any]

_COPIES = 2
"""Of samples: as files are read, and as one array."""


def calibration_arrays(given: GivenInputs, program: ImportedModel) -> Mapping[str, Array]:
    """For each input an array with one sample after the other; each is read when asked for.

    A file of arrays holds any number of samples; a folder, a pattern and an image one a file.

    Raises:
        UserError: FILE001, INPUT001 to INPUT003, ARG001, MEM001, PKG001; QUANT001 if the program is
            no float one.
    """
    tensors = {
        name: Tensor(name, type_.elem, type_.shape, 0)
        for name, type_ in float_inputs(program).items()
    }
    stored: dict[str, StoredArray] = {}
    others: list[str] = []
    for argument in given.arguments:
        name, path = split_argument(argument, list(tensors))
        if not is_array_file(path):
            others.append(argument)
            continue
        file = ArrayFile(path)
        if name is None:
            stored |= {key: file.array(key) for key in file.keys}
        else:
            key = next((key for key in (name, PREFIX + name) if key in file.keys), file.keys[0])
            stored[name] = file.array(key)
    if not others:
        return _Stored(stored)
    left = {
        name: tensor
        for name, tensor in tensors.items()
        if not {name, PREFIX + name} & stored.keys() and not (len(tensors) == 1 and "" in stored)
    }
    order = "RGB" if program.operators else "BGR"
    known = {one.input: one for one in program.normalizations}
    samples = samples_of(others, Taker(left or tensors, given.images, order, known))
    for image in dict.fromkeys(str(one) for sample in samples for one in sample.formats.values()):
        say(f"note: images are taken as {image}")
    needed = [
        Part(name, _COPIES * len(samples) * 4 * int(np.prod(tensor.shape, dtype=object)))
        for name, tensor in left.items()
    ]
    check_memory("the calibration inputs", needed)
    values = [sample.fitting() for sample in samples]
    return {**_Stored(stored), **{name: np.stack([one[name] for one in values]) for name in left}}


class _Stored(Mapping[str, "Array"]):
    """Arrays of files; each is read when it is asked for."""

    def __init__(self, arrays: Mapping[str, StoredArray]) -> None:
        self._arrays = arrays

    def __getitem__(self, key: str) -> Array:
        return self._arrays[key].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, key: object) -> bool:
        return key in self._arrays


def paths_of(arguments: Sequence[str]) -> list[str]:
    """What the arguments name, without the inputs' names."""
    return [argument.rpartition("=")[2] for argument in arguments]
