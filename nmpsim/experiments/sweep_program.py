"""The program of a sweep, which is compiled for every device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from nmpsim.bundle import Bundle, Tensor, read_bundle
from nmpsim.bundle.metadata import Normalization, to_unsigned
from nmpsim.config import DeviceConfig, default_device, from_settings
from nmpsim.diagnostics import fail
from nmpsim.experiments.identity import compute_digest
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.nodes import Module, TensorType


@attrs.frozen(eq=False)
class SweepProgram:
    """A program that can be compiled for any device: LIR, constants and numerics profiles."""

    name: str
    module: Module
    numerics: str
    layer_numerics: Mapping[str, str]
    base: DeviceConfig
    """The device whose settings a sweep changes, unless another is given."""
    warnings: tuple[str, ...] = ()
    unsigned: frozenset[str] = frozenset()
    """Inputs and outputs that a user passes as uint8 or uint16."""
    channel_order: str = "BGR"
    """Channel order of images, unless the user chooses one."""
    normalizations: tuple[Normalization, ...] = ()
    """Normalization of images, as far as the model's file defines it."""

    @property
    def digest(self) -> str:
        """Digest of LIR, exact scales, constants and numerics, which identifies the program."""
        from nmpsim.bundle.debug import make_debug_sections

        arithmetic = repr((self.numerics, sorted(self.layer_numerics.items())))
        sections = make_debug_sections(self.module, {}).values()
        parts = [memoryview(chunk).cast("B") for chunks in sections for chunk in chunks]
        return compute_digest([arithmetic.encode(), *parts])

    def inputs(self) -> tuple[Tensor, ...]:
        """Return the input tensors, with the element types of the user and the address 0.

        Inputs are mutable weights that are read before they are written.
        """
        from nmpsim.compiler.resolve import resolve_operands

        weights, operations = resolve_operands(self.module)
        read: set[str] = set()
        written: set[str] = set()
        for operation in operations:
            for view, operand in zip(
                operation.operands, operation.instruction.operands, strict=True
            ):
                if operand.kind != "@out" and view.buffer.name not in written:
                    read.add(view.buffer.name)
            written.update(view.buffer.name for view in operation.list_outputs())
        return tuple(
            self._as_user_has(name, view.type)
            for name, view in weights.items()
            if not view.buffer.constant and name in read
        )

    def _as_user_has(self, name: str, type_: TensorType) -> Tensor:
        quant = type_.quant
        scale, offset = (quant.scale, quant.offset) if quant and quant.scale else (None, None)
        tensor = Tensor(name, type_.elem, type_.shape, 0, scale, offset)
        return to_unsigned(tensor) if name in self.unsigned else tensor


def load_sweep_program(
    program: Bundle | Path | str,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    numerics: str | None = None,
) -> SweepProgram:
    """Load the program of a bundle, of a model or of LIR text, with its constants.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, MODEL, PKG and BUN; BUN005 for a bundle without its module;
        ARG001 for weights or numerics given with a bundle, which has its own.
    """
    if isinstance(program, Bundle):
        return _of_bundle(program)
    from nmpsim.analysis.program import is_bundle, load_program, refuse_files

    path = Path(program)
    files = [None if file is None else Path(file) for file in (weights, tensors)]
    if is_bundle(path):
        refuse_files(path, *files)
        if numerics is not None:
            hint = "Omit --numerics, or pass the LIR."
            message = "--numerics cannot change the numerics of a bundle"
            raise fail("ARG001", message, place=path, hint=hint)
        return _of_bundle(read_bundle(path))
    loaded = load_program(path, *files)
    return SweepProgram(
        loaded.module.name,
        loaded.module,
        numerics or loaded.numerics or DEFAULT_NUMERICS,
        {} if numerics else loaded.layer_numerics,
        default_device(),
        loaded.warnings,
        loaded.unsigned,
        loaded.channel_order,
        loaded.normalizations,
    )


def _of_bundle(bundle: Bundle) -> SweepProgram:
    metadata = bundle.metadata
    return SweepProgram(
        metadata.program,
        bundle.module(),
        metadata.numerics,
        {
            name: layer.numerics
            for layer in metadata.layers
            if layer.numerics not in ("", metadata.numerics)
            for name in (layer.fused[:1] or (layer.name,))
        },
        from_settings(metadata.device),
        unsigned=frozenset(metadata.unsigned),
        channel_order=metadata.channel_order,
        normalizations=metadata.normalizations,
    )
