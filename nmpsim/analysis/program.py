"""Load the module of a program from LIR text, a model or a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nmpsim.bundle import Bundle, read_bundle
from nmpsim.bundle.elf import MAGIC
from nmpsim.bundle.metadata import Normalization
from nmpsim.compiler.assign import assign_numerics, list_layer_parts
from nmpsim.compiler.fuse import fuse_clips
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.config import default_device
from nmpsim.diagnostics import fail
from nmpsim.frontends import import_model
from nmpsim.frontends.imported_model import ImportedModel
from nmpsim.input_files import read_head
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse_file
from nmpsim.lir.scales import read_scales_file, resolve_exact_scales
from nmpsim.lir.verify import verify


@attrs.frozen
class Program:
    """A verified module with the metadata of the file that it was loaded from."""

    module: Module
    """The module, with constants only if their values are known."""
    numerics: str | None = None
    """Numerics profile of the bundle or of the model's format."""
    layer_indices: Mapping[str, int] | None = None
    """Layer index by instruction name; None for LIR, where each operation is a layer."""
    display_names: Mapping[str, str] | None = None
    """Display name of the layer by instruction name; None for LIR."""
    layer_numerics: Mapping[str, str] = attrs.field(factory=dict)
    """Numerics profile by instruction name, where it differs from ``numerics``."""
    warnings: tuple[str, ...] = ()
    unsigned: frozenset[str] = frozenset()
    """Inputs and outputs that users pass as uint8 or uint16."""
    channel_order: str = "BGR"
    """Default channel order of images; see the bundle's metadata."""
    normalizations: tuple[Normalization, ...] = ()
    """Default normalization of images; see the bundle's metadata."""
    device: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings of the bundle's device by name; empty without a bundle."""


def load_program(path: Path, weights: Path | None = None, tensors: Path | None = None) -> Program:
    """Load a program from a bundle, a model file or LIR text.

    ``weights`` and ``tensors`` are for LIR only; others contain their constants and exact scales.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, MODEL, PKG and BUN; ARG001 for weights given with a
        bundle or model.
    """
    program = load_compiled_or_model(path, weights, tensors)
    if program is not None:
        return program
    printed = parse_file(path)
    sidecar = find_tensors_file(path) if tensors is None else tensors
    if weights is None:
        content = None if sidecar is None else read_scales_file(sidecar)
        module, warnings = resolve_exact_scales(printed, content, sidecar)
    else:
        module, warnings = attach_constants(printed, weights, sidecar)
    verify(module)
    return Program(module, warnings=warnings)


def load_compiled_or_model(
    path: Path, weights: Path | None = None, tensors: Path | None = None
) -> Program | None:
    """Load a program from a bundle or a model file; return None for LIR text.

    Raises
    ------
    UserError
        As :func:`load_program`.
    """
    if is_bundle(path):
        refuse_files(path, weights, tensors)
        return program_from_bundle(read_bundle(path))
    imported = import_model(path, weights, tensors)
    return None if imported is None else program_from_model(imported)


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle, by its first bytes; False if it cannot be opened."""
    return read_head(path, len(MAGIC)) == MAGIC


def refuse_files(path: Path, *files: Path | None) -> None:
    """Raise UserError (ARG001) if files with constants or scales are given with a bundle."""
    if any(file is not None for file in files):
        raise fail(
            "ARG001",
            "--weights and --tensors cannot be used with a bundle",
            place=path,
            hint="Omit these options; the bundle contains its constants and scales.",
        )


def program_from_model(imported: ImportedModel) -> Program:
    """Return an imported model as a program, with its layers on the default device."""
    _, resolved = resolve_operands(imported.module)
    operations = assign_numerics(resolved, imported.numerics, imported.layer_numerics)
    parts = list_layer_parts(fuse_clips(assign_placement(operations, default_device())))
    return Program(
        imported.module,
        imported.numerics,
        {part.name: part.index for part in parts},
        {part.name: part.display_name for part in parts},
        imported.layer_numerics,
        warnings=imported.warnings,
        unsigned=imported.unsigned,
        channel_order="RGB",
        normalizations=imported.normalizations,
    )


def program_from_bundle(bundle: Bundle) -> Program:
    """Return the program that a bundle was compiled from.

    Raises
    ------
    UserError
        BUN002, BUN003 or BUN005 if the bundle carries no usable module.
    """
    indices: dict[str, int] = {}
    numerics: dict[str, str] = {}
    for layer in bundle.metadata.layers:
        names = (layer.name, *layer.fused)
        indices |= dict.fromkeys(names, layer.index)
        if layer.numerics:
            numerics |= dict.fromkeys(names, layer.numerics)
    metadata = bundle.metadata
    unsigned = frozenset(metadata.unsigned)
    return Program(
        bundle.module(),
        metadata.numerics,
        indices,
        metadata.display_names,
        numerics,
        unsigned=unsigned,
        device=metadata.device,
    )
