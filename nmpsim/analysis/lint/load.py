"""From files to a subject of the rules."""

from __future__ import annotations

import math
from pathlib import Path

import attrs

from nmpsim.analysis.lint.references import (
    read_float_arrays,
    read_original_biases,
    split_stale,
)
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.program import from_bundle, is_bundle, refuse_files
from nmpsim.bundle import Bundle, read_bundle
from nmpsim.config import from_settings
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends import import_model
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES
from nmpsim.lir.constants import attach_constants_from, default_tensors_file, read_constants
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.parser import parse_file
from nmpsim.lir.printer import format_scale
from nmpsim.lir.scales import exact_scales, float32, read_tensors, scales_by_name, unknown_scales
from nmpsim.lir.verify import verify
from nmpsim.quantization import read_profile


@attrs.frozen
class References:
    """Files to compare a program with."""

    float_weights: Path | None = None
    original_weights: Path | None = None
    original_tensors: Path | None = None
    ranges: Path | None = None


def load_subject(
    program: Module | Bundle | Path,
    weights: Path | None = None,
    tensors: Path | None = None,
    numerics: str | None = None,
    references: References | None = None,
) -> Subject:
    """What the rules look at.

    Args:
        program: a verified module with exact scales, a bundle, or a file of LIR, of a model or of
            a bundle.
        weights: constants of a file of LIR; without them many rules cannot look.
        tensors: its exact scales; the sidecar next to it if None. Where it contradicts the text
            about a bias, the text holds and the sidecar is what the bias was before.
        numerics: profile; that of the bundle or model, or ``glow-int``, if None.
        references: files to compare with.

    Raises:
        UserError: codes of FILE, LIR, CONST, MODEL, BUN, ARG and PKG.
    """
    if numerics is not None and numerics not in NUMERICS_NAMES:
        known = ", ".join(NUMERICS_NAMES)
        raise fail("COMP001", "unknown arithmetic profile", found=numerics, expected=known)
    subject = _subject(program, weights, tensors)
    if numerics is not None:
        subject = attrs.evolve(subject, numerics=numerics, layer_numerics={})
    return _with_references(subject, references or References())


def _subject(
    program: Module | Bundle | Path, weights: Path | None, tensors: Path | None
) -> Subject:
    if isinstance(program, Module):
        return Subject(program, DEFAULT_NUMERICS)
    if isinstance(program, Path):
        if not is_bundle(program):
            imported = import_model(program, weights, tensors)
            if imported is not None:
                return Subject(imported.module, imported.numerics, warnings=imported.warnings)
            return _from_lir(program, weights, tensors)
        refuse_files(program, weights, tensors)
        program = read_bundle(program)
    carried = from_bundle(program)
    numerics = carried.numerics or DEFAULT_NUMERICS
    device = from_settings(program.metadata.device)
    shown = program.metadata.display_names
    return Subject(carried.module, numerics, device, carried.layer_numerics, shown)


def _from_lir(path: Path, weights: Path | None, tensors: Path | None) -> Subject:
    printed = parse_file(path)
    verify(printed)
    sidecar = default_tensors_file(path) if tensors is None else tensors
    place = Place(None if sidecar is None else str(sidecar))
    payloads = {} if weights is None else read_constants(printed, weights)
    content = {} if sidecar is None else read_tensors(sidecar)
    stale = split_stale(printed, content, payloads, place)
    if weights is None:
        module, _ = exact_scales(printed, stale.tensors, sidecar)
    else:
        module, _ = attach_constants_from(printed, payloads, stale.tensors)
    scales = scales_by_name(stale.tensors, place)
    return Subject(
        module,
        DEFAULT_NUMERICS,
        original=stale.originals or None,
        printed_only=unknown_scales(printed, scales),
        snapped=frozenset() if scales else _snapped(module),
    )


def _snapped(module: Module) -> frozenset[str]:
    """Tensors that got a power of two which their nine decimals are not."""
    types = {weight.name: weight.type for weight in module.weights}
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if isinstance(type_, TensorType) and instruction.opcode != "tensorview":
            types[instruction.name] = type_
    scales = {name: type_.quant.scale for name, type_ in types.items() if type_.quant}
    return frozenset(
        name
        for name, scale in scales.items()
        if math.frexp(scale)[0] == 0.5 and float32(float(format_scale(scale))) != scale
    )


def _with_references(subject: Subject, references: References) -> Subject:
    module = subject.module
    if references.float_weights is not None:
        arrays = read_float_arrays(module, references.float_weights)
        subject = attrs.evolve(subject, float_weights=arrays)
    if references.original_weights is not None:
        given = read_original_biases(
            module, references.original_weights, references.original_tensors
        )
        subject = attrs.evolve(subject, original={**(subject.original or {}), **given})
    if references.ranges is not None:
        subject = attrs.evolve(subject, ranges=read_profile(references.ranges))
    return subject
