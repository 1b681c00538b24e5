"""``--input`` and the options for images: what the command line says of inputs.

:mod:`nmpsim.cli.inputs` reads them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from nmpsim.cli.stdin import spooled
from nmpsim.records import frozen

_Command = TypeVar("_Command", bound=Callable[..., Any])

MODES = {"0to1": (0.0, 1.0), "neg1to1": (-1.0, 1.0), "neg128to127": (-128.0, 127.0)} | {
    "0to255": (0.0, 255.0)
}
"""What the smallest and the largest pixel become."""
LAYOUTS = ("NCHW", "NHWC")
CHANNEL_ORDERS = ("RGB", "BGR")


@frozen
class ImageOptions:
    """What the command line says of images; None, or empty, where it says nothing."""

    mode: str | None = None
    layout: str | None = None
    channel_order: str | None = None
    mean: tuple[float, ...] = ()
    stddev: tuple[float, ...] = ()
    resize: bool = False


NOTHING_SAID = ImageOptions()


@frozen
class GivenInputs:
    """What the command line says of inputs."""

    arguments: tuple[str, ...] = ()
    """Of ``--input``."""
    images: ImageOptions = NOTHING_SAID


def spooled_arguments(
    ctx: click.Context, _: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Arguments ``[NAME=]FILE`` with a file in place of ``-``."""
    split = (value.rpartition("=") for value in values)
    return tuple(f"{name}{equals}{spooled(file, ctx, named=True)}" for name, equals, file in split)


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> tuple[float, ...]:
    """``1,2.5,3``; empty without the option."""
    if value is None:
        return ()
    try:
        found = tuple(float(word) for word in value.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise click.BadParameter(f"{value!r} is not numbers with commas between them.")
    return found


def input_option(text: str) -> Callable[[_Command], _Command]:
    """``--input [NAME=]FILE`` and how images are taken; together ``inputs``, a GivenInputs."""

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_inputs(**options: Any) -> Any:
            given = GivenInputs(options.pop("inputs"), options.pop("images"))
            return command(**options, inputs=given)

        option = click.option(
            "--input",
            "inputs",
            metavar="[NAME=]FILE",
            multiple=True,
            callback=spooled_arguments,
            help=text,
        )
        return cast(_Command, option(image_options(with_inputs)))

    return add


def image_options(command: _Command) -> _Command:
    """Glow's options for images and ``--resize``; together ``images``, an ImageOptions."""

    @functools.wraps(command)
    def with_images(**options: Any) -> Any:
        images = ImageOptions(
            options.pop("image_mode"),
            options.pop("image_layout"),
            options.pop("image_channel_order"),
            options.pop("image_mean"),
            options.pop("image_stddev"),
            options.pop("resize"),
        )
        return command(**options, images=images)

    each = "one number, or one for each channel in the order of --image-channel-order"
    added = with_images
    for option in (
        click.option(
            "--resize", is_flag=True, help="Make images of another size fit (bilinear, by Pillow)."
        ),
        click.option(
            "--image-stddev",
            metavar="S1,S2,S3",
            callback=_numbers,
            help=f"Divide pixels, less the mean, by this: {each}.",
        ),
        click.option(
            "--image-mean",
            metavar="M1,M2,M3",
            callback=_numbers,
            help=f"Subtract this from pixels, of 0 to 255: {each}.",
        ),
        click.option(
            "--image-channel-order",
            type=click.Choice(CHANNEL_ORDERS),
            help="Of the input.  [default: RGB; BGR for a program of LIR, as Glow has it]",
        ),
        click.option(
            "--image-layout",
            type=click.Choice(LAYOUTS),
            help="Of the input.  [default: what its shape says]",
        ),
        click.option(
            "--image-mode",
            type=click.Choice(list(MODES)),
            help="What pixels of 0 to 255 become.  [default: uint8 as it is, else what the model"
            " or the range of the input's type says]",
        ),
    ):
        added = option(added)
    return cast(_Command, added)
