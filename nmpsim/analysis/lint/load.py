"""Loading of the program to check, and of the files that it is compared with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.lint.subject import LintSubject, OriginalBias
from nmpsim.analysis.program import Program, load_compiled_or_model, make_bundle_program
from nmpsim.analysis.shadow.constants import read_floats
from nmpsim.array_files import ArrayFile
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.diagnostics import Place, UserError, did_you_mean, fail
from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.lir.constants import attach_arrays, find_tensors_file, read_constants
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind
from nmpsim.lir.parser import parse_file
from nmpsim.lir.printer import format_scale
from nmpsim.lir.scales import (
    SidecarScale,
    find_inexact_scales,
    iterate_types,
    parse_scales,
    read_scales_file,
    resolve_exact_scales,
    round_to_float32,
)
from nmpsim.lir.verify import verify
from nmpsim.quantization import read_profile

_CONST = "const/"


def map_biases_to_layers(module: Module) -> dict[str, Operation]:
    """Map the name of each constant bias to the layer that reads the bias."""
    return {
        op.operands[3].buffer.name: op
        for op in resolve_operands(module)[1]
        if op.kind in WEIGHTED and op.operands[3].buffer.constant
    }


def read_float_arrays(module: Module, path: Path) -> dict[str, Array]:
    """Read the arrays of a float model that have the size of a weight or bias of the module.

    Raises
    ------
    UserError
        FILE001, CONST001 or PKG001, or CONST002 if no array has.
    """
    weighted = [
        op for op in resolve_operands(module)[1] if op.kind in (*WEIGHTED, OpcodeKind.PRODUCT)
    ]
    views = [view for op in weighted for view in op.operands[2:4] if view.buffer.constant]
    sizes = {view.type.elements for view in views}
    arrays = read_floats(path, sizes)
    finite = {name: array for name, array in arrays.items() if np.isfinite(array).all()}
    if sizes and not finite:
        raise _nothing_comparable(
            path, "float array of finite numbers with the size of weights or a bias"
        )
    return finite


def read_original_biases(
    module: Module, weights: Path, tensors: Path | None
) -> dict[str, OriginalBias]:
    """Read the biases that a program had before its bias types were changed.

    Parameters
    ----------
    module
        The program to check.
    weights
        ``.npz`` file with the earlier program's constants.
    tensors
        Sidecar file with its scales; if None, ``X.tensors.json`` next to ``X.npz``, if it exists.

    Returns
    -------
    dict of str to OriginalBias
        Earlier biases by constant name.

    Raises
    ------
    UserError
        FILE001, CONST001, CONST004, or CONST002 if the file has none of the biases.
    """
    sidecar = _sidecar_of(weights) if tensors is None else tensors
    types = parse_scales(read_scales_file(sidecar), Place(str(sidecar))) if sidecar else {}
    originals = dict(_original_biases(map_biases_to_layers(module), weights, types))
    if not originals:
        raise _nothing_comparable(weights, "integer array with the name and size of a bias")
    return originals


def _sidecar_of(weights: Path) -> Path | None:
    path = weights.with_name(f"{weights.name.removesuffix('.npz')}.tensors.json")
    return path if path.is_file() else None


def _original_biases(
    layers: Mapping[str, Operation], weights: Path, types: Mapping[str, SidecarScale]
) -> Iterator[tuple[str, OriginalBias]]:
    with ArrayFile(weights, "CONST001").keep_open() as file:
        for name, op in layers.items():
            count = op.operands[3].type.elements
            payload = _read_array(file, name, "i", count)
            if payload is None:
                continue
            scales, offsets = _scale_arrays(types.get(name))
            if tables := op.operands[6:8]:
                scales = _read_array(file, tables[0].buffer.name, "f", count)
                offsets = _read_array(file, tables[1].buffer.name, "i", count)
            yield name, OriginalBias(payload.astype(np.int64), scales, offsets)


def _read_array(file: ArrayFile, name: str, kind: str, count: int) -> Array | None:
    """Return the flat array of a constant, or None if the file has none of this kind and size."""
    key = next((k for k in (_CONST + name, name) if k in file.keys), None)
    if key is None:
        return None
    array = file.get_array(key)
    fits = array.dtype.kind == kind and array.size == count
    return array.read().reshape(-1) if fits else None


def _scale_arrays(exact: SidecarScale | None) -> tuple[Array | None, Array | None]:
    if exact is None:
        return None, None
    return np.array([exact.scale]), np.array([exact.offset])


def _nothing_comparable(path: Path, what: str) -> UserError:
    return fail(
        "CONST002",
        "the file contains no array that can be compared with the program",
        place=path,
        found=f"no {what}",
        expected=f"at least one {what}",
        hint="Pass a file that belongs to this network.",
    )


@attrs.frozen
class SidecarEntries:
    """Sidecar entries that agree with the LIR text, and biases whose type the text changed."""

    tensors: Mapping[str, Any]
    """Entries of the sidecar that agree with the text."""
    originals: Mapping[str, OriginalBias]
    """Biases whose type was changed in the text although their payload was not."""


def split_stale_types(
    printed: Module, tensors: Mapping[str, Any], payloads: Arrays, place: Place
) -> SidecarEntries:
    """Split a sidecar into entries that agree with the LIR text and outdated bias types.

    Other contradictions remain, and attaching the scales reports them as errors. The digest of a
    payload in the sidecar shows whether the payload is unchanged.

    Parameters
    ----------
    printed
        The module as read from text.
    tensors
        Content of the sidecar.
    payloads
        Values of constants by name.
    place
        The sidecar file, for errors.
    """
    exact = parse_scales(tensors, place)
    stale = {
        name: exact[name]
        for name, op in map_biases_to_layers(printed).items()
        if name in exact and not op.operands[6:8] and _type_differs(op.operands[3], exact[name])
    }
    kept = {key: entry for key, entry in tensors.items() if _tensor_name(key) not in stale}
    originals = {
        name: OriginalBias(None, *_scale_arrays(old))
        for name, old in stale.items()
        if name in payloads and _digest_fits(tensors[old.key], payloads[name])
    }
    return SidecarEntries(kept, originals)


def _tensor_name(key: str) -> str:
    return key.rpartition("/")[2].rpartition(":")[2]


def _type_differs(view: BufferView, exact: SidecarScale) -> bool:
    declared, old = format_scale(view.scale), format_scale(exact.scale)
    return view.type.quant is not None and (declared, view.offset) != (old, exact.offset)


def _digest_fits(entry: Mapping[str, Any], payload: Array) -> bool:
    digest = hashlib.sha256(payload.tobytes()).hexdigest()
    written = entry.get("sha256")
    return isinstance(written, str) and len(written) >= 8 and digest.startswith(written.lower())


@attrs.frozen
class ReferenceFiles:
    """Reference files with which a program is compared; None if a file is not used."""

    float_weights: Path | None = None
    original_weights: Path | None = None
    original_tensors: Path | None = None
    ranges: Path | None = None


def load_subject(
    program: Module | Bundle | Path,
    weights: Path | None = None,
    tensors: Path | None = None,
    numerics: str | None = None,
    references: ReferenceFiles | None = None,
) -> LintSubject:
    """Load the subject of lint: a program, and the files with which it is compared.

    Parameters
    ----------
    program
        A verified module with exact scales, a bundle, or a file of LIR, of a model or of
        a bundle.
    weights
        Constants of a file of LIR; without them many rules cannot look.
    tensors
        Its exact scales; the sidecar next to it if None. Where it contradicts the text
        about a bias, the text holds and the sidecar is what the bias was before.
    numerics
        Profile; that of the bundle or model, or ``glow-int``, if None.
    references
        Files to compare with.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, MODEL, BUN, ARG and PKG.
    """
    subject = _load_program(program, weights, tensors)
    module, own, original = subject.module, subject.program, subject.original
    if numerics is not None:
        own = own.with_numerics(numerics)
        if own.numerics not in NUMERICS_NAMES:
            known = ", ".join(NUMERICS_NAMES)
            hint = did_you_mean(numerics, NUMERICS_NAMES)
            message = "unknown numerics profile"
            raise fail("COMP001", message, found=numerics, expected=known, hint=hint)
    files = references or ReferenceFiles()
    if files.original_weights is not None:
        given = read_original_biases(module, files.original_weights, files.original_tensors)
        original = {**(original or {}), **given}
    return attrs.evolve(
        subject,
        program=own,
        original=original,
        float_weights=None
        if files.float_weights is None
        else read_float_arrays(module, files.float_weights),
        ranges=None if files.ranges is None else read_profile(files.ranges),
    )


def _load_program(
    program: Module | Bundle | Path, weights: Path | None, tensors: Path | None
) -> LintSubject:
    if isinstance(program, Module):
        return LintSubject(Program(program))
    carried = (
        make_bundle_program(program)
        if isinstance(program, Bundle)
        else load_compiled_or_model(program, weights, tensors)
    )
    if carried is None:
        assert isinstance(program, Path)
        return _from_lir(program, weights, tensors)
    return LintSubject(carried)


def _from_lir(path: Path, weights: Path | None, tensors: Path | None) -> LintSubject:
    printed = parse_file(path)
    verify(printed)
    sidecar = find_tensors_file(path) if tensors is None else tensors
    place = Place(None if sidecar is None else str(sidecar))
    payloads = {} if weights is None else read_constants(printed, weights)
    content = {} if sidecar is None else read_scales_file(sidecar)
    stale = split_stale_types(printed, content, payloads, place)
    if weights is None:
        module, _ = resolve_exact_scales(printed, stale.tensors, sidecar)
    else:
        module, _ = attach_arrays(printed, payloads, stale.tensors)
    scales = parse_scales(stale.tensors, place)
    return LintSubject(
        Program(module),
        original=stale.originals or None,
        printed_only=find_inexact_scales(printed, scales),
        snapped=frozenset() if scales else _snapped_scales(module),
    )


def _snapped_scales(module: Module) -> frozenset[str]:
    """Return tensors whose scale became a power of two that differs from its printed decimals."""
    scales = {
        name: type_.quant.scale
        for name, type_, _, viewed in iterate_types(module)
        if type_.quant and viewed is None
    }
    return frozenset(
        name
        for name, scale in scales.items()
        if math.frexp(scale)[0] == 0.5 and round_to_float32(float(format_scale(scale))) != scale
    )
