"""Load the module of a program from LIR text, a model or a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from nmpsim.bundle import Bundle, Tensor, parse_bundle, read_bundle
from nmpsim.bundle.elf import MAGIC
from nmpsim.bundle.formulas import CustomFormulas, find_custom_formulas, select_numerics
from nmpsim.bundle.metadata import Normalization, make_unsigned_tensor
from nmpsim.compiler.assign import assign_numerics, list_layer_operations
from nmpsim.compiler.fuse import fuse_clips
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.resolve import find_inputs_and_outputs, resolve_operands
from nmpsim.config import DeviceConfig, default_device, make_device_config
from nmpsim.diagnostics import refuse_options
from nmpsim.frontends import import_model
from nmpsim.frontends.imported_model import (
    DEFAULT_IMPORT_OPTIONS,
    ImportedModel,
    ImportOptions,
)
from nmpsim.input_files import read_first_bytes
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.parser import parse_file
from nmpsim.lir.scales import read_scales_file, resolve_exact_scales
from nmpsim.lir.verify import verify


@attrs.frozen
class Program:
    """Program for analyses: a verified module with the metadata of its file."""

    module: Module
    """The module, with constants only if their values are known."""
    numerics: str = DEFAULT_NUMERICS
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
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings of the bundle's device by name; empty without a bundle."""
    formulas: CustomFormulas | None = None
    """Formulas of the bundle that replace standard ones."""

    @property
    def device(self) -> DeviceConfig:
        """Device of the bundle, or the default device."""
        return make_device_config(self.settings)

    def get_numerics(self, instruction: str) -> str:
        """Return the numerics profile of an instruction by its name."""
        return self.layer_numerics.get(instruction, self.numerics)

    def get_display_name(self, instruction: str) -> str:
        """Return the display name of an instruction's layer; its name if it has none."""
        return (self.display_names or {}).get(instruction, instruction)

    def with_numerics(self, choice: str) -> Program:
        """Return a copy whose layers all use the numerics profile or formulas file ``choice``."""
        numerics, formulas = select_numerics(choice)
        return attrs.evolve(self, numerics=numerics, formulas=formulas, layer_numerics={})

    @property
    def numerics_label(self) -> str:
        """Numerics profile of the program, or the label of its formulas file."""
        return self.numerics if self.formulas is None else self.formulas.label

    def list_inputs(self) -> tuple[Tensor, ...]:
        """Return the input tensors with the element types in which users pass them."""
        inputs, _ = find_inputs_and_outputs(self.module)
        return tuple(self._make_user_tensor(view.name, view.type) for view in inputs)

    def _make_user_tensor(self, name: str, type_: TensorType) -> Tensor:
        quant = type_.quant
        scale, offset = (quant.scale, quant.offset) if quant and quant.scale else (None, None)
        tensor = Tensor(name, type_.elem, type_.shape, 0, scale, offset)
        return make_unsigned_tensor(tensor) if name in self.unsigned else tensor

    def compile(self, device: DeviceConfig, **options: Any) -> Bundle:
        """Compile the program with options of ``compile_module`` and return the bundle."""
        from nmpsim.compiler.driver import compile_module  # slow to import

        image = compile_module(
            self.module,
            device,
            numerics=self.numerics,
            layer_numerics=self.layer_numerics,
            formulas=self.formulas,
            unsigned=self.unsigned,
            **options,
        )
        return parse_bundle(image, self.module.name)


@lru_cache(maxsize=2)
def compile_without_chains(bundle: Bundle, tiling: str = "layer") -> Bundle:
    """Compile a bundle again without chains, or return ``bundle`` itself if it has no chains.

    Parameters
    ----------
    bundle : Bundle
        The compiled program.
    tiling : str
        Tiling of single layers, as for ``compile_module``.

    Returns
    -------
    Bundle
        The same program without chains, or ``bundle`` itself if it has none.

    Raises
    ------
    UserError
        BUN002, BUN003 or BUN005 if the bundle carries no usable module.
    """
    metadata = bundle.metadata
    if not any(layer.in_scratchpads for layer in metadata.layers):
        return bundle
    program = make_bundle_program(bundle)
    lines = {name: one.line for one in metadata.layers for name in (one.name, *one.fused)}
    instructions = tuple(
        attrs.evolve(one, span=attrs.evolve(one.span, line=lines.get(one.name, one.span.line)))
        for one in program.module.instructions
    )
    program = attrs.evolve(program, module=attrs.evolve(program.module, instructions=instructions))
    return program.compile(
        program.device,
        fuse_activations=any(layer.fused for layer in metadata.layers),
        tiling=tiling,
        operators=metadata.operators,
        normalizations=metadata.normalizations,
    )


def load_program(
    path: Path,
    weights: Path | None = None,
    tensors: Path | None = None,
    *,
    options: ImportOptions = DEFAULT_IMPORT_OPTIONS,
) -> Program:
    """Load a program from a bundle, a model file or LIR text.

    ``weights`` and ``tensors`` are for LIR only; others contain their constants and exact scales.
    ``options`` are those of a model file.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, MODEL, PKG and BUN; ARG001 for weights given with a
        bundle or model.
    """
    program = load_compiled_or_model(path, weights, tensors, options=options)
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
    path: Path,
    weights: Path | None = None,
    tensors: Path | None = None,
    *,
    options: ImportOptions = DEFAULT_IMPORT_OPTIONS,
) -> Program | None:
    """Load a program from a bundle or a model file; return None for any other file.

    Raises
    ------
    UserError
        As :func:`load_program`.
    """
    if is_bundle(path):
        refuse_files(path, weights, tensors)
        return make_bundle_program(read_bundle(path))
    imported = import_model(path, weights, tensors, options)
    return None if imported is None else make_model_program(imported)


def is_bundle(path: Path) -> bool:
    """Return whether a file begins like a bundle; False if the file cannot be opened."""
    return read_first_bytes(path, len(MAGIC)) == MAGIC


def refuse_files(path: Path, weights: Path | None, tensors: Path | None) -> None:
    """Raise UserError (ARG001) if constants or scales are given together with a bundle."""
    given = {"--weights": weights, "--tensors": tensors}
    hint = "Leave out the options: the bundle contains its constants and scales."
    refuse_options(given, "with a bundle", hint, path)


def make_model_program(imported: ImportedModel) -> Program:
    """Create a program for the default device from an imported model."""
    _, resolved = resolve_operands(imported.module)
    operations = assign_numerics(resolved, imported.numerics, imported.layer_numerics)
    parts = list_layer_operations(fuse_clips(assign_placement(operations, default_device())))
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


def make_bundle_program(bundle: Bundle) -> Program:
    """Create a program from a bundle.

    Raises
    ------
    UserError
        BUN002, BUN003 or BUN005 if the bundle carries no usable module.
    """
    metadata = bundle.metadata
    return Program(
        bundle.module(),
        metadata.numerics,
        {name: layer.index for layer in metadata.layers for name in (layer.name, *layer.fused)},
        metadata.display_names,
        metadata.layer_numerics,
        unsigned=frozenset(metadata.unsigned),
        channel_order=metadata.channel_order,
        normalizations=metadata.normalizations,
        settings=metadata.device,
        formulas=find_custom_formulas(metadata.formulas),
    )
