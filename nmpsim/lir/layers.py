"""Lookup of the layer that a user names, for commands and for Python (docs/layers.md).

The layers may be those of a bundle, of a report, or the operations of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import attrs

from nmpsim.diagnostics import UserError, did_you_mean, fail, quote
from nmpsim.lir.names import strip_numeric_suffix

_MAX_CANDIDATES = 8
"""Number of layers that an error lists."""
_MAX_NAME = 40
"""Longest name in an error; for a longer one the display name is used."""


class NamedLayer(Protocol):
    """Protocol of layers that can be looked up by name."""

    @property
    def index(self) -> int:
        """Index of the layer, or -1 if the operation belongs to no layer."""

    @property
    def number(self) -> int:
        """Number of the LIR instruction."""

    @property
    def line(self) -> int:
        """Line of the LIR instruction in the text, 1-based, or 0 if there is no text."""

    @property
    def name(self) -> str:
        """Name of the LIR instruction."""

    @property
    def display_name(self) -> str:
        """Short name, unique among the layers."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Names of the instructions fused into the layer, and of its result."""

    @property
    def placement(self) -> str:
        """Placement of the layer, ``device`` or ``host``, or '' if unknown."""


Layer = TypeVar("Layer", bound=NamedLayer)


@attrs.frozen
class LayerEntry:
    """Minimal layer record with the fields of :class:`NamedLayer`."""

    index: int
    number: int
    line: int
    name: str
    placement: str = ""
    other_names: tuple[str, ...] = ()
    display_name: str = ""


def find_layer(
    layers: Sequence[Layer], selector: str, code: str = "LAYER001", suggestions: Iterable[str] = ()
) -> Layer:
    """Return the layer that a selector names; raise UserError unless exactly one layer matches.

    Parameters
    ----------
    layers
        Layers to search.
    selector
        An index; a display name; a full name, with or without the number that Glow appends, or a
        part of one that TFLite joined with ``;``; ``line:N`` or ``number:N`` of the LIR;
        ``index:N``; ``NNNN:NAME`` as in saved layers.
    code
        Code of the error.
    suggestions
        Other valid words, for the error's hint.

    Raises
    ------
    UserError
        ``code`` for none or several, with the layers that may be meant.
    """
    return find_operations(layers, selector, code, suggestions)[-1]


def find_operations(
    layers: Sequence[Layer], selector: str, code: str = "LAYER001", suggestions: Iterable[str] = ()
) -> tuple[Layer, ...]:
    """Return the operations of the layer ``selector``; raise UserError if unknown or ambiguous.

    See :func:`find_layer` for the forms of selectors.
    """
    found = _named(layers, selector.removeprefix("%"))
    if len({_identity(layer) for layer in found}) == 1:
        return tuple(found)
    raise (
        _ambiguous(selector, found, code)
        if found
        else _unknown(layers, selector, code, suggestions)
    )


def _identity(layer: NamedLayer) -> tuple[int, int]:
    return (layer.index, 0) if layer.index >= 0 else (-1, layer.number)


def _named(layers: Sequence[Layer], selector: str) -> list[Layer]:
    """Return the layers that a selector names, by the first way that finds any."""
    exact = [layer for layer in layers if layer.name == selector]
    exact = exact or [layer for layer in layers if selector in layer.other_names]
    exact = exact or [layer for layer in layers if selector and layer.display_name == selector]
    if exact:
        return exact
    kind, colon, rest = selector.partition(":")
    if selector.isdecimal():
        return [layer for layer in layers if _is(layer.index, selector)]
    if colon and kind in _NUMBERS:
        return [layer for layer in layers if _is(_NUMBERS[kind](layer), rest)]
    if colon and kind.isdecimal():
        return [layer for layer in layers if layer.name == rest and _is(layer.number, kind)]
    return (
        _called(layers, selector, lambda name: (strip_numeric_suffix(name),))
        or _called(layers, selector, _split_joined_names)
        or _called(layers, selector, lambda name: _split_joined_names(strip_numeric_suffix(name)))
    )


_NUMBERS: dict[str, Callable[[NamedLayer], int]] = {
    "index": lambda layer: layer.index,
    "line": lambda layer: layer.line,
    "number": lambda layer: layer.number,
}


def _is(number: int, digits: str) -> bool:
    """Compare a number with digits as text; there may be any number of digits."""
    return digits.isdecimal() and str(number) == (digits.lstrip("0") or "0")


def _split_joined_names(name: str) -> Sequence[str]:
    """Return the names of operations that TFLite joined to one name."""
    return name.split(";")


def _called(
    layers: Sequence[Layer], selector: str, short: Callable[[str], Sequence[str]]
) -> list[Layer]:
    """Return the layers with this short name; the only one on the device if there is one."""
    found = [
        layer
        for layer in layers
        if any(selector in short(name) for name in (layer.name, *layer.other_names))
    ]
    device = [layer for layer in found if layer.placement == "device"]
    return device if len({_identity(layer) for layer in device}) == 1 else found


def _ambiguous(selector: str, found: Sequence[NamedLayer], code: str) -> UserError:
    return fail(
        code,
        f"{quote(selector)!r} matches {len(found)} layers",
        found=_listed(found),
        expected="one layer",
        hint=f"Use the full name of the layer, or number:{found[0].number}.",
    )


def _unknown(
    layers: Sequence[NamedLayer], selector: str, code: str, suggestions: Iterable[str]
) -> UserError:
    begun = [layer for layer in layers if selector and _begins(layer, selector)]
    hint = None if begun else did_you_mean(selector, (*suggestions, *map(_shown, layers)))
    if any(_is(layer.number, selector) for layer in layers):
        hint = f"Use number:{selector} to select the LIR instruction with this number."
    return fail(
        code,
        f"no layer is named {quote(selector)!r}",
        found=f"{_listed(begun or layers)}" if layers else "a program without layers",
        expected="an index, a name, line:N or number:N of the LIR",
        hint=hint,
    )


def _shown(layer: NamedLayer) -> str:
    return layer.name if len(layer.name) <= _MAX_NAME else layer.display_name or layer.name


def _begins(layer: NamedLayer, selector: str) -> bool:
    return layer.display_name.startswith(selector) or layer.name.startswith(selector)


def _listed(layers: Sequence[NamedLayer]) -> str:
    first = {(_identity(layer), _shown(layer)): layer for layer in reversed(layers)}
    shown = [
        f"{_shown(layer)} (index {layer.index}, number {layer.number})" for layer in first.values()
    ][::-1]
    more = len(shown) - _MAX_CANDIDATES
    return ", ".join(shown[:_MAX_CANDIDATES]) + (f" and {more} more" if more > 0 else "")
