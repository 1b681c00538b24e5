"""Names of tensors, layers and operations, and lookup of layers (docs/layers.md).

The layers may be those of a bundle, of a report, or the operations of a program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from nmpsim.diagnostics import UserError, did_you_mean, fail
from nmpsim.lir.line import quote
from nmpsim.records import frozen

# Names of tensors, layers and operations, as every view shows them (docs/layers.md).

_CONSTANT = "const/"
_SUFFIX = re.compile(r"(__\d+)+$")
_LAST_SUFFIX = re.compile(r"(?<=.)__\d+$")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_MAX_PARTS = 64
_MAX_DEPTH = 16
"""Limits on joined names of a layer and on components of a path; names are untrusted."""
_WRAPPER = "StatefulPartitionedCall/"
"""Prefix that TensorFlow 2 adds to a path that it names twice."""
_OPERATIONS = {
    "channelwisequantizedconvolution": "conv",
    "convolution": "conv",
    "fullyconnected": "fc",
    "rowwisequantizedfullyconnected": "fc",
    "rescalequantized": "rescale",
    "intlookuptable": "lut",
    "inserttensor": "insert",
    "extracttensor": "slice",
    "localresponsenormalization": "lrn",
    "cpumaxsplat": "maxsplat",
}
"""Opcode -> common name, if it is not the opcode without ``element``."""


@frozen
class _Path:
    """The path of which a layer's display name is a suffix."""

    components: tuple[str, ...]
    separator: str

    def suffixes(self) -> Iterator[str]:
        """Yield the suffixes of the path, shortest first.

        A suffix that begins with a digit is left out: commands would take it for a layer's index.
        """
        for first in range(len(self.components) - 1, -1, -1):
            if self.components[first][:1].isalpha():
                yield self.separator.join(self.components[first:])


def make_display_names(names: Sequence[str]) -> list[str]:
    """Return a short unique name for each layer, the shortest unique suffix of its path.

    A TFLite name joins the paths of all operations that were fused, and of constants that the
    layer shares with others. Its path is the scope that no other layer works in and that most of
    these paths lie in: ``Conv2d_0`` of ``M/Conv2d_0/Relu6;M/Conv2d_0/add_fold;M/Conv2d_1/bias``.
    Where layers share a scope, the last component stays. A name that is no path is its own.

    Parameters
    ----------
    names
        Full names of all layers of a program.

    Returns
    -------
    list of str
        Display names in the same order, as different from each other as the full names are.
    """
    scopes = [_scopes(name) for name in names]
    layers_in = Counter(scope for found in scopes for scope in found)
    paths = [_path(name, found, layers_in) for name, found in zip(names, scopes, strict=True)]
    taken = Counter(names)
    endings = Counter(suffix for path in paths for suffix in path.suffixes())
    return [
        next((one for one in path.suffixes() if endings[one] == 1 and one not in taken), name)
        for name, path in zip(names, paths, strict=True)
    ]


def _scopes(name: str) -> Mapping[tuple[str, ...], int]:
    """Return the scopes that contain at least half of a name's paths, with their number."""
    parts = _parts(name)
    counts = Counter(
        part[:length] for part in parts for length in range(1, min(len(part), _MAX_DEPTH))
    )
    return {scope: count for scope, count in counts.items() if 2 * count >= len(parts)}


def _parts(name: str) -> list[tuple[str, ...]]:
    texts = dict.fromkeys(part.removeprefix(_WRAPPER) for part in name.split(";", _MAX_PARTS))
    return [tuple(text.split("/")) for text in texts]


def _path(
    name: str, scopes: Mapping[tuple[str, ...], int], layers_in: Mapping[tuple[str, ...], int]
) -> _Path:
    if not scopes:
        is_dotted = not any(character in name for character in "/;")
        return _Path(tuple(name.split(".", _MAX_DEPTH)) if is_dotted else (name,), ".")

    def rank(scope: tuple[str, ...]) -> tuple[int, bool, int, int, int]:
        is_root = len(scope) == 1  # most often the network
        return layers_in[scope], is_root, -scopes[scope], -len(scope), len(scope[-1])

    best = min(scopes, key=rank)
    if layers_in[best] == 1 and (len(best) > 1 or scopes[best] > 1):
        return _Path(best, "/")
    return _Path([part for part in _parts(name) if part[: len(best)] == best][-1], "/")


def get_operation_name(
    opcode: str, attributes: Mapping[str, Any] | None = None, channels: int | None = None
) -> str:
    """Return the common name of an operation, such as ``conv1x1``, ``dwconv`` or ``fc``.

    Parameters
    ----------
    opcode
        Opcode of the LIR instruction.
    attributes
        Attributes of the instruction; without them all convolutions are ``conv``.
    channels
        Input channels of a convolution.
    """
    word = _OPERATIONS.get(opcode, opcode.removeprefix("element"))
    if word != "conv" or attributes is None:
        return word
    if attributes.get("Group", 1) != 1:
        return "dwconv" if attributes["Group"] == channels else "groupconv"
    kernels = attributes.get("Kernels")
    return "conv1x1" if kernels is not None and set(kernels) == {1} else word


def make_legal_name(name: str) -> str:
    """Convert a model's name to a legal LIR name of letters, digits and underscores."""
    text = _ILLEGAL.sub("_", name.removeprefix(_CONSTANT))
    return text if text[:1].isalpha() or text[:1] == "_" else f"A{text}"


def strip_numeric_suffix(name: str) -> str:
    """Return a name without the suffix ``__N`` that Glow appends to names in use."""
    return _SUFFIX.sub("", name)


class UniqueNames:
    """Set of used names; a repeated name gets a suffix ``__N``, as in Glow."""

    replaces_suffix = False
    """Whether a new suffix replaces the last suffix of a name."""

    def __init__(self) -> None:
        self._used_names: set[str] = set()
        self._last_suffix: dict[str, int] = {}

    def make_unique(self, name: str) -> str:
        """Add a name to the used names, extended by ``__N`` if it is in use, and return it."""
        candidate, number = name, self._last_suffix.get(name, 0)
        stem = _LAST_SUFFIX.sub("", name) if self.replaces_suffix else name
        while candidate in self._used_names:
            number += 1
            candidate = f"{stem}__{number}"
        self._last_suffix[name] = number
        self._used_names.add(candidate)
        return candidate


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
