"""Reading what a program is compared with: float weights, original constants."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.subject import OriginalBias
from nmpsim.analysis.shadow.float_files import read_floats
from nmpsim.analysis.weighted import WEIGHTED
from nmpsim.compiler.resolve import resolve
from nmpsim.compiler.work import View
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.nodes import Module
from nmpsim.lir.npz import NpzFile
from nmpsim.lir.opcode import WEIGHTED as KINDS
from nmpsim.lir.opcode import Kind
from nmpsim.lir.printer import format_scale
from nmpsim.lir.scales import ExactScale, read_tensors, scales_by_name

Array: TypeAlias = npt.NDArray[Any]

_CONST = "const/"


@attrs.frozen
class BiasConstant:
    """A constant that is the bias of a layer with weights."""

    view: View
    tables: tuple[str, ...]
    """Constants with the scale and the zero point of each channel, where its type has none."""

    @property
    def name(self) -> str:
        """Of the constant."""
        return self.view.buffer.name


def biases_of(module: Module) -> tuple[BiasConstant, ...]:
    """The constants that are biases of layers with weights, each once."""
    _, operations = resolve(module)
    found: dict[str, BiasConstant] = {}
    for op in operations:
        if op.instruction.opcode in WEIGHTED and op.operands[3].buffer.constant:
            tables = tuple(view.buffer.name for view in op.operands[6:8])
            bias = BiasConstant(op.operands[3], tables)
            found[bias.name] = bias
    return tuple(found.values())


def read_float_arrays(module: Module, path: Path) -> dict[str, Array]:
    """The float arrays of a file that have the size of one of the program's weights or biases.

    Raises:
        UserError: FILE001, CONST001 or PKG001, or CONST002 if no array has.
    """
    weighted = [op for op in resolve(module)[1] if op.kind in (*KINDS, Kind.PRODUCT)]
    views = [view for op in weighted for view in op.operands[2:4] if view.buffer.constant]
    sizes = {view.type.elements for view in views}
    arrays = read_floats(path, sizes)
    finite = {name: array for name, array in arrays.items() if np.isfinite(array).all()}
    if sizes and not finite:
        raise _nothing_fits(
            path, "float array of finite numbers with the size of weights or a bias"
        )
    return finite


def read_original_biases(
    module: Module, weights: Path, tensors: Path | None
) -> dict[str, OriginalBias]:
    """The program's biases as another program's files have them.

    ``tensors`` is the sidecar with that program's scales; without it ``X.tensors.json`` next to
    ``X.npz`` is taken, if it is there.

    Raises:
        UserError: FILE001, CONST001, CONST004, or CONST002 if the file has none of the biases.
    """
    sidecar = _sidecar_of(weights) if tensors is None else tensors
    types = scales_by_name(read_tensors(sidecar), Place(str(sidecar))) if sidecar else {}
    originals = dict(_original_biases(biases_of(module), weights, types))
    if not originals:
        raise _nothing_fits(weights, "integer array with the name and size of a bias")
    return originals


def _sidecar_of(weights: Path) -> Path | None:
    path = weights.with_name(f"{weights.name.removesuffix('.npz')}.tensors.json")
    return path if path.is_file() else None


def _original_biases(
    biases: Iterable[BiasConstant], weights: Path, types: Mapping[str, ExactScale]
) -> Iterator[tuple[str, OriginalBias]]:
    with NpzFile(weights) as file:
        for bias in biases:
            count = bias.view.type.elements
            payload = _array(file, bias.name, "i", count)
            if payload is None:
                continue
            scales, offsets = _type(types.get(bias.name))
            if bias.tables:
                scales = _array(file, bias.tables[0], "f", count)
                offsets = _array(file, bias.tables[1], "i", count)
            yield bias.name, OriginalBias(payload.astype(np.int64), scales, offsets)


def _array(file: NpzFile, name: str, kind: str, count: int) -> Array | None:
    """The array of a constant, flat, if the file has one of this kind and size."""
    key = next((k for k in (_CONST + name, name) if k in file), None)
    if key is None:
        return None
    header = file.header(key)
    fits = header.dtype.kind == kind and math.prod(header.shape) == count
    return file.read(key).reshape(-1) if fits else None


def _type(exact: ExactScale | None) -> tuple[Array | None, Array | None]:
    if exact is None:
        return None, None
    return np.array([exact.scale]), np.array([exact.offset])


def _nothing_fits(path: Path, what: str) -> UserError:
    return fail(
        "CONST002",
        "the file has nothing to compare the program's constants with",
        place=Place(str(path)),
        found=f"no {what}",
        hint="is it another network's?",
    )


@attrs.frozen
class StaleTypes:
    """A sidecar that is older than the types in the text."""

    tensors: Mapping[str, Any]
    """Its content without what the text contradicts."""
    originals: Mapping[str, OriginalBias]
    """Biases whose type was changed in the text, while the payload is still the sidecar's."""


def split_stale(
    printed: Module, tensors: Mapping[str, Any], payloads: Mapping[str, Array], place: Place
) -> StaleTypes:
    """Take the biases out of a sidecar whose types the text has changed.

    Any other difference of text and sidecar stays: attaching the scales refuses it.
    That a payload is unchanged is told by the sidecar's digest of it.
    """
    biases, exact = biases_of(printed), scales_by_name(tensors, place)
    stale = {
        bias.name: exact[bias.name]
        for bias in biases
        if bias.name in exact and not bias.tables and _differs(bias.view, exact[bias.name])
    }
    kept = {key: entry for key, entry in tensors.items() if _tensor_name(key) not in stale}
    originals = {
        name: OriginalBias(None, *_type(old))
        for name, old in stale.items()
        if name in payloads and _digest_fits(tensors[old.key], payloads[name])
    }
    return StaleTypes(kept, originals)


def _tensor_name(key: str) -> str:
    return key.rpartition("/")[2].rpartition(":")[2]


def _differs(view: View, exact: ExactScale) -> bool:
    declared, old = format_scale(view.scale), format_scale(exact.scale)
    return view.type.quant is not None and (declared, view.offset) != (old, exact.offset)


def _digest_fits(entry: Mapping[str, Any], payload: Array) -> bool:
    digest = hashlib.sha256(payload.tobytes()).hexdigest()
    written = entry.get("sha256")
    return isinstance(written, str) and len(written) >= 8 and digest.startswith(written.lower())
