"""Matching of tensors by names: equal names, names of the model's file, spellings, endings."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from nmpsim.analysis.matching.tensors import StoredTensor
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix

_SEPARATOR = re.compile(r"[/;|.]")
_APPENDED = re.compile(r"(_output_0|:0|_(De)?[Qq]uantizeLinear_Output|_quantized|__\d+)+$")
"""Endings that exporters, quantizers, front ends and Glow append to the name of an operation."""
_BIAS_ADD = re.compile("Bias_?Add", re.IGNORECASE)
_MAX_DEPTH = 16
"""Largest number of components of a name whose endings are compared."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_KINDS = {
    "conv": "conv", "convolution": "conv", "depthwise": "conv",
    "add": "add", "sub": "add", "mul": "mul", "concat": "concat", "concatenation": "concat",
    "fc": "fc", "gemm": "fc", "matmul": "fc", "dense": "fc", "linear": "fc",
    "connected": "fc", "fullyconnected": "fc",
    "pool": "pool", "maxpool": "pool", "avgpool": "pool", "mean": "pool", "softmax": "softmax",
    "channelwisequantizedconvolution": "conv", "rowwisequantizedfullyconnected": "fc",
    "elementadd": "add", "elementsub": "add", "elementmul": "mul",
}  # fmt: skip
"""Word of a name or opcode -> kind of operation."""

MAX_SHARED = 100
"""Number of tensors with one key that are examined."""

NameKeys = Callable[[StoredTensor], Iterable[str]]


def list_own_names(tensor: StoredTensor) -> Iterable[str]:
    """Return a tuple with the tensor's name, without its names in the model's file."""
    return (tensor.name,)


def list_all_names(tensor: StoredTensor) -> Iterable[str]:
    """Return a tuple with the tensor's name and its names in the model's file."""
    return (tensor.name, *tensor.source_names)


def list_spellings(tensor: StoredTensor) -> Iterable[str]:
    """Return the normalized spelling of each tensor name, without suffixes of exporters or Glow."""
    return (_normalize(name) for name in list_all_names(tensor))


def list_endings(tensor: StoredTensor) -> Iterator[str]:
    """Yield the endings of a tensor's names that start at a component, such as b/c for a/b/c."""
    for name in list_all_names(tensor):
        parts = _SEPARATOR.split(name.strip("/"))
        for first in range(max(0, len(parts) - _MAX_DEPTH), len(parts)):
            ending = _normalize("/".join(parts[first:]))
            if not ending.isdigit() and len(ending) > 1:
                yield ending


def _normalize(name: str) -> str:
    return make_legal_name(strip_numeric_suffix(_APPENDED.sub("", name))).strip("_")


def pair_unique_names(
    tensors: Sequence[StoredTensor],
    references: Sequence[StoredTensor],
    list_keys: NameKeys,
    fits: Callable[[StoredTensor, StoredTensor], bool],
) -> Iterator[tuple[StoredTensor, StoredTensor]]:
    """Yield (tensor, reference) pairs accepted by ``fits`` whose longest common key is unique."""
    by_key: dict[str, list[StoredTensor]] = defaultdict(list)
    for other in references:
        for key in set(list_keys(other)):
            by_key[key].append(other)
    best: list[tuple[StoredTensor, StoredTensor]] = []
    uses: Counter[StoredTensor] = Counter()
    for one in tensors:
        lengths: dict[StoredTensor, int] = {}
        for key in list_keys(one):
            for other in by_key.get(key, ())[:MAX_SHARED]:
                lengths[other] = max(lengths.get(other, 0), len(key))
        fitting = [other for other in lengths if fits(one, other)]
        longest = max((lengths[other] for other in fitting), default=0)
        found = [other for other in fitting if lengths[other] == longest]
        uses.update(found)
        best += [(one, other) for other in found if len(found) == 1]
    yield from ((one, other) for one, other in best if uses[other] == 1)


def find_operation_kind(tensor: StoredTensor) -> str:
    """Return the operation kind in a tensor's opcode or name, or "" if unknown or ambiguous."""
    text = tensor.opcode or _BIAS_ADD.sub("", _APPENDED.sub("", tensor.name))
    words = {word.lower() for word in _WORD.findall(text)}
    kinds = {_KINDS[word] for word in words if word in _KINDS}
    return kinds.pop() if len(kinds) == 1 else ""
