"""Names of tensors, layers and operations, as every view shows them (docs/layers.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nmpsim.records import frozen

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


def map_display_names(names: Iterable[str]) -> dict[str, str]:
    """Return a mapping from full names of layers to unique display names."""
    unique = list(dict.fromkeys(names))
    return dict(zip(unique, make_display_names(unique), strict=True))


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
