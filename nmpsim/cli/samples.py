"""The inputs of a run as files hold them: a file for an input, or one for each item of a batch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nmpsim.cli.images import ImageFormat, image_format, read_image
from nmpsim.cli.input_options import NOTHING_SAID, ImageOptions
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.records import frozen
from nmpsim.views.text import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle.metadata import Metadata, Normalization, Tensor

    Array = npt.NDArray[Any]


@frozen(eq=False)
class Taker:
    """A program's inputs, and how it takes images."""

    tensors: Mapping[str, Tensor]
    """By name, as a user has them."""
    images: ImageOptions = NOTHING_SAID
    channel_order: str = "RGB"
    """Of images, where the options say nothing."""
    normalizations: Mapping[str, Normalization] = MappingProxyType({})
    """By input, as far as the model's file says it."""

    @classmethod
    def of(cls, metadata: Metadata, images: ImageOptions) -> Taker:
        """That of a bundle."""
        tensors = {tensor.name: tensor for tensor in metadata.user_inputs}
        normalizations = {one.input: one for one in metadata.normalizations}
        return cls(tensors, images, metadata.channel_order, normalizations)

    def batch(self, name: str) -> int:
        """Items of an input; 1 if it has no dimension for them."""
        shape = self.tensors[name].shape
        return shape[0] if len(shape) > 1 else 1

    def item(self, name: str) -> Tensor:
        """An input as one item of its batch has it."""
        tensor = self.tensors[name]
        shape = (1, *tensor.shape[1:]) if self.batch(name) > 1 else tensor.shape
        return attrs.evolve(tensor, shape=shape)

    def fitting(self, name: str, size: int) -> tuple[Tensor, int]:
        """The input, or one item of it, whichever has so many values; files that fill the input."""
        item, whole = self.item(name), self.tensors[name]
        is_item = size == math.prod(item.shape) != math.prod(whole.shape)
        return (item, self.batch(name)) if is_item else (whole, 1)

    def image_format(self, name: str) -> ImageFormat:
        """How an input takes images."""
        normalization = self.normalizations.get(name)
        return image_format(self.item(name), self.images, self.channel_order, normalization)

    def only(self, path: Path) -> str:
        """The input that a file is for which holds one thing; INPUT001 if there are several."""
        if len(self.tensors) != 1:
            raise fail(
                "INPUT001",
                "this file does not say which input it is",
                place=Place(str(path)),
                expected=f"one of the inputs {listed(list(self.tensors))}",
                hint="--input " + shlex.quote(f"{next(iter(self.tensors), 'NAME')}={path}"),
            )
        return next(iter(self.tensors))

    def read_image(self, name: str, path: Path) -> Array:
        """An image in the shape of one item of an input."""
        return read_image(path, self.item(name), self.image_format(name), self.images.resize)


@frozen(eq=False)
class Source:
    """A file with values for an input."""

    path: Path
    read: Callable[[], Array]
    """The values, in the shape of ``tensor`` where only dimensions of 1 differ."""
    tensor: Tensor
    """The input, or one item of it."""
    batch: int = 1
    """How many such files fill the input."""
    is_image: bool = False

    def fitting(self) -> Array:
        """The values; what a run would refuse is refused here, with the file (INPUT002)."""
        from nmpsim.core.inputs import mismatch

        array = self.read()
        wrong = mismatch(self.tensor, array)
        if wrong is not None:
            hint = _mend(self.tensor, array) or wrong.hint
            raise UserError(attrs.evolve(wrong, place=Place(str(self.path)), hint=hint))
        return array


Run = Mapping[str, tuple[Source, ...]]
"""By input: one file, or one for each item of its batch."""


@frozen(eq=False)
class Sample:
    """Where the inputs of one run come from."""

    files: tuple[str, ...]
    """Those that tell it from other runs; several if each is an item of a batch."""
    sources: Run
    taker: Taker

    @property
    def name(self) -> str:
        """For a reader."""
        return self.files[0] + " and so on" * (len(self.files) > 1) if self.files else ""

    def fitting(self) -> dict[str, Array]:
        """The values of each input as they are in the files.

        Raises :class:`~nmpsim.diagnostics.UserError`: FILE001, INPUT002, INPUT003 and PKG001.
        """
        return {name: _joined(sources) for name, sources in self.sources.items()}

    @property
    def formats(self) -> dict[str, ImageFormat]:
        """How its images are taken, by input."""
        return {
            name: self.taker.image_format(name)
            for name, sources in self.sources.items()
            if any(source.is_image for source in sources)
        }


def _joined(sources: Sequence[Source]) -> Array:
    items = [source.fitting() for source in sources]
    for source, item in zip(sources, items, strict=True):
        if item.dtype != items[0].dtype:
            raise fail(
                "INPUT002",
                "the items of a batch are of different types",
                place=Place(str(source.path)),
                found=str(item.dtype),
                expected=f"{items[0].dtype}, as in {sources[0].path}",
            )
    return items[0] if len(items) == 1 else np.concatenate(items)


def batched(files: Sequence[Mapping[str, Source]]) -> list[Run]:
    """What the files of one argument hold, by run: items of a batch are put together.

    Raises:
        UserError: INPUT001 if the last batch is not full, or some files are whole batches.
    """
    first = next((source for file in files for source in file.values()), None)
    if first is None:
        return [{} for _ in files]
    for file in files:
        source = next((one for one in file.values() if one.batch != first.batch), None)
        if source is not None:
            raise fail(
                "INPUT001",
                "some files hold a whole batch, others one item of it",
                place=Place(str(source.path)),
                found=f"{source.batch} such files would fill input {source.tensor.name!r}",
                expected=f"{first.batch}, as of {first.path}",
            )
        if first.batch > 1 and file.keys() != files[0].keys():
            raise fail(
                "INPUT001",
                "the items of a batch are of different inputs",
                place=Place(str(next(iter(file.values())).path)),
                found=listed(list(file)),
                expected=f"{listed(list(files[0]))}, as in {first.path}",
            )
    size, left = first.batch, len(files) % first.batch
    if left:
        more = f"add {size - left}"
        if len(files) < size:
            more = f"a pattern in quotes or a folder gives {size} files"
        raise fail(
            "INPUT001",
            f"the last batch of input {first.tensor.name!r} is not full",
            place=Place(str(next(iter(files[-1].values())).path)),
            found=f"{plural(len(files), 'file')} with one item each",
            expected=f"a multiple of {size}, the input's first dimension",
            hint=f"leave out the last {left}, or {more}" if len(files) > size else more,
        )
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    return [{name: tuple(file[name] for file in group) for name in group[0]} for group in groups]


def _mend(tensor: Tensor, values: Array) -> str | None:
    """What to do with values that no run takes, where one can tell."""
    shape, found = tensor.shape, values.shape
    if len(found) == len(shape) == 4:
        for order, name in (((0, 2, 3, 1), "NCHW"), ((0, 3, 1, 2), "NHWC")):
            if tuple(found[axis] for axis in order) == shape and found != shape:
                return f"the array is {name}: x.transpose{order}"
    own = ELEM_DTYPES[tensor.elem]
    if found == shape and values.dtype != own and values.dtype.kind in "iub":
        if tensor.scale is not None:
            return (
                f"real numbers: x.astype('float32'); values on the input's scale:"
                f" x.astype('{own.name}')"
            )
        return f"x.astype('{own.name}')"
    return None


def listed(names: Sequence[str]) -> str:
    """The first of several names, for an error."""
    shown = [repr(name) for name in names[:8]]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
