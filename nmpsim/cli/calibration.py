"""Calibration samples of a float network, from arrays, images and folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmpsim.array_files import ArrayFile, StoredArray
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.metadata import Tensor
from nmpsim.cli.inputs import PREFIX, find_samples, is_array_file, split_argument
from nmpsim.cli.samples import ProgramInputs, print_image_formats
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.quantization import find_float_inputs

if TYPE_CHECKING:
    from nmpsim.cli.options import ImageOptions
    from nmpsim.frontends import ImportedModel

    Array = Array

_COPIES = 2
"""Copies of the samples in memory: as read, and as one array."""


def load_calibration_samples(
    arguments: Sequence[str], images: ImageOptions, program: ImportedModel
) -> Arrays:
    """Load the calibration samples of each float input by name, stacked along the first axis.

    A file of arrays holds any number of samples; an image, and each file of a folder or a pattern,
    is one sample.

    Raises
    ------
    UserError
        FILE001, INPUT001 to INPUT003, ARG001, MEM001, PKG001; QUANT001 if the program is not float.
    """
    tensors = {
        name: Tensor(name, type_.elem, type_.shape, 0)
        for name, type_ in find_float_inputs(program).items()
    }
    stored: dict[str, StoredArray] = {}
    others: list[str] = []
    for argument in arguments:
        name, path = split_argument(argument, list(tensors))
        if not is_array_file(path):
            others.append(argument)
            continue
        file = ArrayFile(path)
        if name is None:
            stored |= {key: file.get_array(key) for key in file.keys}
        else:
            stored[name] = file.get_array(file.find_keys([name], PREFIX).get(name, file.keys[0]))
    if not others:
        return _StoredArrays(stored)
    left = {
        name: tensor
        for name, tensor in tensors.items()
        if not {name, PREFIX + name} & stored.keys() and not (len(tensors) == 1 and "" in stored)
    }
    order = "RGB" if program.operators else "BGR"
    known = {one.input: one for one in program.normalizations}
    samples = find_samples(others, ProgramInputs(left or tensors, images, order, known))
    print_image_formats(samples)
    needed = [
        PlannedAllocation(
            name, _COPIES * len(samples) * 4 * int(np.prod(tensor.shape, dtype=object))
        )
        for name, tensor in left.items()
    ]
    check_memory("the calibration inputs", needed)
    values = [sample.load() for sample in samples]
    stacked = {name: np.stack([one[name] for one in values]) for name in left}
    return {**_StoredArrays(stored), **stacked}


class _StoredArrays(Mapping[str, "Array"]):
    """Arrays of files, read on request."""

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
