"""Finding the layer that a user means, among layers of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.messages import did_you_mean, quote

_NAMES_IN_ERROR = 8


class NamedLayer(Protocol):
    """What a layer must tell to be found."""

    @property
    def index(self) -> int:
        """Position among the layers."""

    @property
    def number(self) -> int:
        """Number of its LIR instruction."""

    @property
    def name(self) -> str:
        """Name of that instruction."""


Layer = TypeVar("Layer", bound=NamedLayer)


def select_layer(layers: Sequence[Layer], wanted: str) -> Layer:
    """The layer that a user means.

    By the instruction's name, or the beginning of just one name; by ``NNNN:NAME`` as in saved
    layers; by ``number:N``, the instruction's number, or ``index:N``, the layer's; by a bare N if
    it is only one of the two.

    Raises:
        UserError: LAYER001 for none or several.
    """
    found = _matching(layers, wanted)
    if len(found) == 1:
        return found[0]
    raise _not_one(layers, wanted, found)


def _matching(layers: Sequence[Layer], wanted: str) -> list[Layer]:
    word = wanted.removeprefix("%")
    kind, _, rest = word.partition(":")
    if kind == "number" and rest.isdecimal():
        return [layer for layer in layers if layer.number == int(rest)]
    if kind == "index" and rest.isdecimal():
        return [layer for layer in layers if layer.index == int(rest)]
    if kind.isdecimal() and rest:
        return [layer for layer in layers if (layer.number, layer.name) == (int(kind), rest)]
    if word.isdecimal():
        return [layer for layer in layers if int(word) in (layer.number, layer.index)]
    exact = [layer for layer in layers if layer.name == word]
    return exact or [layer for layer in layers if word and layer.name.startswith(word)]


def _not_one(layers: Sequence[Layer], wanted: str, found: Sequence[Layer]) -> UserError:
    if not found:
        return fail(
            "LAYER001",
            f"no layer is called {quote(wanted)!r}",
            found=_listed(layers) or "a program without layers",
            expected="a name, number:N of an instruction, or index:N of a layer",
            hint=did_you_mean(wanted, (layer.name for layer in layers)),
        )
    return fail(
        "LAYER001",
        f"{quote(wanted)!r} may be one of {len(found)} layers",
        found=_listed(found),
        expected="one layer",
        hint=f"write its whole name, or number:{found[0].number}",
    )


def _listed(layers: Sequence[Layer]) -> str:
    shown = [
        f"{layer.name} (index {layer.index}, number {layer.number})"
        for layer in layers[:_NAMES_IN_ERROR]
    ]
    more = len(layers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
