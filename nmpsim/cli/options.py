"""Options that several commands share, as classes of options and as single fields."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from nmpsim.cli.parameters import Positive, define_option
from nmpsim.cli.stdin import copy_stream_to_file
from nmpsim.diagnostics import fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.core.limits import Limits

Engine = Literal["auto", "compiled", "reference"]
Format = Literal["text", "json"]

LAYER = "index, name, line:N or number:N"
"""How help texts describe a layer argument."""
EXECUTION, LIMITS, IMAGES = "Execution", "Limits", "Images"
"""Titles of option groups."""

PIXEL_RANGES = {"0to1": (0.0, 1.0), "neg1to1": (-1.0, 1.0), "neg128to127": (-128.0, 127.0)} | {
    "0to255": (0.0, 255.0)
}
"""Image mode -> values of the smallest and the largest pixel."""

_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class _Size(click.ParamType):  # type: ignore[type-arg] # only newer versions of click have it generic
    """A number of bytes: ``800M``, ``2GB`` (powers of 1,000) or ``1.5GiB`` (powers of 1,024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size such as 800M, 2GB or 1.5GiB.", param, ctx)
        whole, fraction, unit, binary = match.groups()
        scale = (1024 if binary else 1000) ** _POWERS[unit.lower()]
        nbytes: int = int(whole + (fraction or "")) * scale // 10 ** len(fraction or "")
        if nbytes < 1:
            self.fail(f"{value!r} is less than one byte.", param, ctx)
        return nbytes


class _FiniteNumber(click.FloatRange):
    """A finite number within a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class _NumberListType(click.ParamType):  # type: ignore[type-arg] # as above
    """Finite numbers separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(word) for word in value.split(","))
        except ValueError:
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            self.fail(f"{value!r} is not a comma-separated list of finite numbers.", param, ctx)
        return numbers


class _InputArgument(click.ParamType):  # type: ignore[type-arg] # as above
    """``[NAME=]FILE``, where ``-`` is standard input."""

    name = "input"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, equals, file = str(value).rpartition("=")
        return f"{name}{equals}{copy_stream_to_file(file, ctx, waits_for_pipes=True)}"


InputArgument = Annotated[str, _InputArgument()]
NumberList = Annotated[tuple[float, ...], _NumberListType()]
FiniteNumber = Annotated[float, _FiniteNumber()]
Tolerance = Annotated[float, _FiniteNumber(0)]
PositiveSeconds = Annotated[float, _FiniteNumber(0, min_open=True)]
Size = Annotated[int, _Size()]


@frozen(kw_only=True)
class ImageOptions:
    """Options for the conversion of images to an input."""

    mode: Literal["0to1", "neg1to1", "neg128to127", "0to255"] | None = define_option(
        "Value range.  [default: from the model]", names="--image-mode", group=IMAGES
    )
    layout: Literal["NCHW", "NHWC"] | None = define_option(
        "Input layout.  [default: from the shape]", names="--image-layout", group=IMAGES
    )
    channel_order: Literal["RGB", "BGR"] | None = define_option(
        "Channel order.  [default: RGB; BGR for LIR]",
        names="--image-channel-order",
        group=IMAGES,
    )
    mean: NumberList = define_option(
        "Subtract these from pixels of 0 to 255.",
        "M1,M2,M3",
        names="--image-mean",
        group=IMAGES,
        default=(),
    )
    stddev: NumberList = define_option(
        "Divide pixels by these, after --image-mean.",
        "S1,S2,S3",
        names="--image-stddev",
        group=IMAGES,
        default=(),
    )
    resize: bool = define_option(
        "Resize images to the input (bilinear).", group=IMAGES, default=False
    )


DEFAULT_IMAGES = ImageOptions()


@frozen(kw_only=True)
class InputOptions:
    """Options for the inputs of a run."""

    arguments: tuple[InputArgument, ...] = define_option(
        "Array, image or raw values; - for stdin.",
        "[NAME=]FILE",
        names="--input",
        default=(),
    )
    images: ImageOptions = DEFAULT_IMAGES


@frozen(kw_only=True)
class LimitOptions:
    """Options for the limits of each run, and of the memory of the command."""

    max_cycles: Annotated[int, click.IntRange(1, 1 << 62)] | None = define_option(
        "Stop a run after N simulated cycles.", "N", group=LIMITS
    )
    timeout: PositiveSeconds | None = define_option(
        "Stop a run after this many seconds of simulation.", "SECONDS", group=LIMITS
    )
    max_memory: Size | None = define_option(
        "Memory limit, such as 2GiB.  [default: free memory]", "SIZE", group=LIMITS
    )

    def make_limits(self) -> Limits:
        """Return the limits of cycles and time as an argument of ``Device.run``."""
        from nmpsim.core.limits import Limits

        return Limits(self.max_cycles, self.timeout)


@frozen(kw_only=True)
class ShapeOptions:
    """Options for the shapes of the inputs of an ONNX model."""

    input_shape: tuple[str, ...] = define_option(
        "Shape of an ONNX input: image=1,3,224,224.", "NAME=DIMS"
    )

    def parse_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input by name; raise UserError (ARG001) for invalid text."""
        shapes: dict[str, tuple[int, ...]] = {}
        for value in self.input_shape:
            name, _, text = value.rpartition("=")
            dims = text.split(",") if text else []
            if not name or name in shapes or not all(d.isascii() and d.isdigit() for d in dims):
                raise fail(
                    "ARG001",
                    f"input {name!r} has two shapes"
                    if name in shapes
                    else "--input-shape is not a name and a shape",
                    found=f"--input-shape {value}",
                    expected="NAME=DIMS, such as image=1,3,224,224, once for an input",
                )
            shapes[name] = tuple(map(int, dims))
        return shapes


@frozen(kw_only=True)
class WorkerOptions:
    """Options for parallel execution: a number of local processes, or a Dask cluster.

    Raises UsageError if both options are given.
    """

    jobs: Positive | None = define_option(
        "Number of processes.  [default: one per processor]", "N", group=EXECUTION
    )
    scheduler: str | None = define_option(
        "Run on the Dask cluster of this scheduler.", "ADDRESS", group=EXECUTION
    )

    def __attrs_post_init__(self) -> None:
        if self.jobs is not None and self.scheduler is not None:
            raise click.UsageError("--jobs cannot be used with --scheduler")


def make_device_option(default: str) -> Any:
    """Return the attrs field of option ``--device``; ``default`` describes the default device."""
    return define_option(f"Device file.  [default: {default}]", "D.toml")


ENGINE_OPTION: Any = define_option("Simulation engine.", group=EXECUTION, default="auto")
"""Request field of ``--engine``, of type ``Engine``."""
STRICT_OPTION: Any = define_option("Trap undefined behavior.", group=EXECUTION, default=True)
"""Request field of ``--strict/--no-strict``, of type bool."""
PATCH_OPTION: Any = define_option("Apply a patch exported by `nmpsim debug`.", "P.json")
"""Request field of ``--patch``, a file."""
FORMAT_OPTION: Any = define_option("Tables or JSON.", default="text")
"""Request field of ``--format``, of type ``Format``."""


def make_output_option(metavar: str, help: str) -> Any:
    """Return the attrs field of option ``-o``, the path of the output file."""
    return define_option(help, metavar, names="-o --output")


WEIGHTS_OPTION: Any = define_option("Constants of a network in LIR.", "W.npz")
"""Request field of ``--weights``, a file."""
TENSORS_OPTION: Any = define_option("Unrounded scales.  [default: NET.tensors.json]", "T.json")
"""Request field of ``--tensors``, a file."""
