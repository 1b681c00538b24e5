"""Input files of a run: one for each input, or one for each item of a batch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.cli.guard import print_message
from nmpsim.cli.images import ImageFormat, choose_image_format, read_image
from nmpsim.cli.options import DEFAULT_IMAGES, ImageOptions
from nmpsim.diagnostics import Place, UserError, fail, format_count, join_first
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.bundle.metadata import Metadata, Normalization, Tensor


@frozen(eq=False)
class ProgramInputs:
    """Inputs of a program: tensors, and the options for converting images to tensors."""

    tensors: Mapping[str, Tensor]
    """Name -> tensor, in the user's layout; state tensors follow the inputs."""
    images: ImageOptions = DEFAULT_IMAGES
    channel_order: str = "RGB"
    """Order of the channels of images without ``--image-channel-order``."""
    normalizations: Mapping[str, Normalization] = MappingProxyType({})
    """Input -> normalization of images according to the model's file."""
    states: Collection[str] = ()
    """Tensors that are optional, because the bundle has their initial values."""

    @classmethod
    def from_bundle(cls, metadata: Metadata, images: ImageOptions) -> ProgramInputs:
        """Create the inputs from the metadata of a bundle and image options."""
        states = metadata.user_states
        tensors = {tensor.name: tensor for tensor in (*metadata.user_inputs, *states)}
        normalizations = {one.input: one for one in metadata.normalizations}
        names = tuple(tensor.name for tensor in states)
        return cls(tensors, images, metadata.channel_order, normalizations, names)

    @property
    def required(self) -> list[str]:
        """Names of the inputs without state tensors."""
        return [name for name in self.tensors if name not in self.states]

    def get_batch_size(self, name: str) -> int:
        """Return the batch size of an input, or 1 if the input has no batch dimension."""
        shape = self.tensors[name].shape
        return shape[0] if len(shape) > 1 else 1

    def get_item_tensor(self, name: str) -> Tensor:
        """Return the tensor of a single item of an input's batch."""
        tensor = self.tensors[name]
        shape = (1, *tensor.shape[1:]) if self.get_batch_size(name) > 1 else tensor.shape
        return attrs.evolve(tensor, shape=shape)

    def match_value_count(self, name: str, size: int) -> tuple[Tensor, int]:
        """Return the tensor that ``size`` values fill (input or item) and the files per run."""
        item, whole = self.get_item_tensor(name), self.tensors[name]
        is_item = size == math.prod(item.shape) != math.prod(whole.shape)
        return (item, self.get_batch_size(name)) if is_item else (whole, 1)

    def get_image_format(self, name: str) -> ImageFormat:
        """Return the image format of an input, by its shape and the image options."""
        normalization = self.normalizations.get(name)
        return choose_image_format(
            self.get_item_tensor(name), self.images, self.channel_order, normalization
        )

    def get_single_name(self, path: Path) -> str:
        """Return the name of the only input. Raises UserError (INPUT001) if there are several."""
        names = self.required
        if len(names) != 1:
            argument = shlex.quote(f"{next(iter(self.tensors), 'NAME')}={path}")
            raise fail(
                "INPUT001",
                "the file does not name the input that it belongs to",
                place=path,
                expected=f"one of the inputs {format_names(names)}",
                hint=f"Pass --input {argument}.",
            )
        return names[0]

    def read_image(self, name: str, path: Path) -> Array:
        """Read an image in the shape of a batch item of an input."""
        return read_image(
            path, self.get_item_tensor(name), self.get_image_format(name), self.images.resize
        )


@frozen(eq=False)
class InputSource:
    """Source of an input's values: a file with the whole input or with one batch item."""

    path: Path
    read: Callable[[], Array]
    """Returns the values, reshaped to ``tensor`` if only dimensions of 1 differ."""
    tensor: Tensor
    """The input, or one item of it."""
    batch: int = 1
    """Number of such files in one run."""
    is_image: bool = False

    def load(self) -> Array:
        """Load the values; raise UserError (INPUT002) if the values do not fit the input."""
        from nmpsim.core.inputs import find_mismatch

        array = self.read()
        problem = find_mismatch(self.tensor, array)
        if problem is not None:
            hint = _suggest_conversion(self.tensor, array) or problem.hint
            raise UserError(attrs.evolve(problem, place=Place(str(self.path)), hint=hint))
        return array


RunSources = Mapping[str, tuple[InputSource, ...]]
"""Input -> its file, or a file for each item of its batch."""


@frozen(eq=False)
class InputSample:
    """Sample for one run: the files of all inputs."""

    files: tuple[str, ...]
    """The files that distinguish this run; several if each is an item of a batch."""
    sources: RunSources
    inputs: ProgramInputs

    @property
    def name(self) -> str:
        """Name of the first file, followed by an ellipsis if there are more files."""
        return self.files[0] + ", ..." * (len(self.files) > 1) if self.files else ""

    def load(self) -> dict[str, Array]:
        """Load the values of each input, by input name.

        Raises UserError: FILE001, INPUT002, INPUT003 and PKG001.
        """
        return {name: _load_items(sources) for name, sources in self.sources.items()}

    @property
    def image_formats(self) -> dict[str, ImageFormat]:
        """Image formats by input name, for inputs that are read from images."""
        return {
            name: self.inputs.get_image_format(name)
            for name, sources in self.sources.items()
            if any(source.is_image for source in sources)
        }


def print_image_formats(samples: Sequence[InputSample]) -> None:
    """Print a note on stderr for each distinct image format of the samples."""
    formats = (str(one) for sample in samples for one in sample.image_formats.values())
    for format in dict.fromkeys(formats):
        print_message(f"note: images are converted to {format}")


def _load_items(sources: Sequence[InputSource]) -> Array:
    items = [source.load() for source in sources]
    for source, item in zip(sources, items, strict=True):
        if item.dtype != items[0].dtype:
            raise fail(
                "INPUT002",
                "the items of a batch have different types",
                place=source.path,
                found=str(item.dtype),
                expected=f"{items[0].dtype}, as in {sources[0].path}",
                hint="Convert all items to the same type.",
            )
    return items[0] if len(items) == 1 else np.concatenate(items)


def group_batches(files: Sequence[Mapping[str, InputSource]]) -> list[RunSources]:
    """Group input files by run; several files fill a batch if each contains one item.

    Raises
    ------
    UserError
        INPUT001 if the last batch is not full, or some files are whole batches.
    """
    first = next((source for file in files for source in file.values()), None)
    if first is None:
        return [{} for _ in files]
    for file in files:
        source = next((one for one in file.values() if one.batch != first.batch), None)
        if source is not None:
            raise fail(
                "INPUT001",
                "some files contain a whole batch, but others contain one item",
                place=source.path,
                found=f"{format_count(source.batch, 'file')} per run for input"
                f" {source.tensor.name!r}",
                expected=f"{format_count(first.batch, 'file')} per run, as for {first.path}",
                hint="Pass only whole batches, or only single items.",
            )
        if first.batch > 1 and file.keys() != files[0].keys():
            raise fail(
                "INPUT001",
                "the items of a batch have different inputs",
                place=next(iter(file.values())).path,
                found=format_names(list(file)),
                expected=f"{format_names(list(files[0]))}, as in {first.path}",
                hint="Pass the same inputs for each item.",
            )
    size, left = first.batch, len(files) % first.batch
    if left:
        more = f"add {size - left}."
        if len(files) < size:
            more = f"Pass {size} files with a folder or a pattern in quotes."
        raise fail(
            "INPUT001",
            f"the last batch of input {first.tensor.name!r} is incomplete",
            place=next(iter(files[-1].values())).path,
            found=f"{format_count(len(files), 'file')} with one item each",
            expected=f"a multiple of {size} files; the first dimension of the input is {size}",
            hint=f"Leave out the last {left}, or {more}" if len(files) > size else more,
        )
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    return [{name: tuple(file[name] for file in group) for name in group[0]} for group in groups]


def _suggest_conversion(tensor: Tensor, values: Array) -> str | None:
    """Return a conversion that makes values fit a tensor; None if there is no obvious one."""
    shape, found = tensor.shape, values.shape
    if len(found) == len(shape) == 4:
        for order, name in (((0, 2, 3, 1), "NCHW"), ((0, 3, 1, 2), "NHWC")):
            if tuple(found[axis] for axis in order) == shape and found != shape:
                return f"Convert the array from {name} with x.transpose{order}."
    own = ELEM_DTYPES[tensor.elem]
    if found == shape and values.dtype != own and values.dtype.kind in "iub":
        if tensor.scale is not None:
            return (
                "Convert real numbers with x.astype('float32'), and quantized values with"
                f" x.astype('{own.name}')."
            )
        return f"Convert the array with x.astype('{own.name}')."
    return None


def format_names(names: Sequence[str]) -> str:
    """Format the first eight names as a list for an error message."""
    return join_first(list(map(repr, names)), 8)
