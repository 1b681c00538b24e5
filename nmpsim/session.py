"""The Python interface: quantize, compile, lint, load, and evaluate the errors of a run.

Modules that only one function needs are imported in it, so that a run does not import the compiler.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.atomic import new_file
from nmpsim.bundle import Bundle, BundleFile, bundle_from_bytes, get_bundle, read_bundle
from nmpsim.bundle.elf import MAGIC
from nmpsim.config import DeviceConfig, from_settings, resolve_device
from nmpsim.core.device import Device
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.limits import Limits
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.diagnostics import fail
from nmpsim.records import frozen
from nmpsim.report.analyses import ShadowLayer
from nmpsim.report.data import RunReport

if TYPE_CHECKING:
    from nmpsim.analysis.lint import Finding
    from nmpsim.compiler.passes.rescale_bias import RescaledBias
    from nmpsim.compiler.tiling.search import TiledLayer
    from nmpsim.frontends import ImportedModel
    from nmpsim.lir.nodes import Module
    from nmpsim.quantization import CalibratedProgram, QuantizedProgram

__all__ = [
    "Compiled",
    "Device",
    "Limits",
    "Progress",
    "Shadow",
    "calibrate",
    "compile",
    "get_device",
    "from_torch",
    "lint",
    "load",
    "apply_patch_file",
    "quantize",
    "save",
]


@frozen
class Compiled:
    """A compiled bundle."""

    file: BundleFile
    """Contents of the bundle file, generated when written; only constants are in memory."""
    warnings: tuple[str, ...]
    rescaled_biases: tuple[RescaledBias, ...] = ()
    """Biases that ``rescale_biases`` changed, by layer."""
    slicing: tuple[TiledLayer, ...] = ()
    """Tiling of each device layer, with ``explain_slicing``."""

    def __repr__(self) -> str:
        return f"<Compiled {repr(self.bundle)[1:-1]}>"

    @cached_property
    def image(self) -> bytes:
        """Bytes of the bundle file, generated at first use."""
        return bytes(self.file)

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle, as returned by :func:`load`."""
        return bundle_from_bytes(self.file, "<compiled>")


def compile(
    model: Path | str | ImportedModel | QuantizedProgram,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    sample_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    integer_islands: bool | None = None,
    device: DeviceConfig | None = None,
    numerics: str | None = None,
    layer_numerics: Mapping[str, str] = MappingProxyType({}),
    rescale_biases: bool = False,
    fuse: bool = True,
    slicing: str | None = None,
    explain_slicing: bool = False,
    progress: ProgressCallback | None = None,
) -> Compiled:
    """Compile a model for a device: a TFLite or ONNX file, LIR text, or what ``from_torch`` read.

    Parameters
    ----------
    model
        A ``.tflite`` or ``.onnx`` file, or one of Glow's ``-dump-ir`` text; the file's
        first bytes tell. Or a model that is imported already, or what ``quantize`` gave.
    weights
        ``.npz`` with the constants by their names in the LIR; of LIR only.
    tensors
        JSON with exact scales; the file next to the LIR is taken if there is one.
    input_shapes
        Of inputs of an ONNX model, by name; else a dimension that the file leaves
        open is 1.
    sample_shapes
        Of arrays for the inputs, by name (empty for the only input), from which
        dimensions are taken that the file leaves open; the first one, the batch, stays 1.
    integer_islands
        Compute on integers what ONNX Runtime computes in float32 between
        conversions, where that is possible; if None in models of 16 bits only.
    device
        The default device if None.
    numerics
        Whose arithmetic to follow, a name of ``nmpsim.isa.profiles.NUMERICS``; if None
        what the model calls for: ``glow-int`` for LIR, ``q31`` for TFLite, ``float`` for
        ONNX, for PyTorch that of its engine.
    layer_numerics
        That of single layers, named as :func:`find_layer` takes them; an
        activation and what it fuses with have one, unless both are named.
    rescale_biases
        Requantize biases onto the scale of each layer's result first.
    fuse
        Let activations become the clip of the operation before them.
    slicing
        How layers are tiled: ``burst`` (all costs of the device; if None),
        ``bytes`` (blind to DRAM bursts and rows) or ``simple`` (one rule, no search).
    explain_slicing
        Tell what was tried for each layer, in ``slicing`` of the result.
    progress
        Called with a :class:`Progress` before each layer is tiled.

    Raises
    ------
    UserError
        LIR, CONST, COMP, MODEL and FILE codes, several at once where possible.
    """
    from nmpsim.compiler.driver import compile_module
    from nmpsim.compiler.passes.rescale_bias import rescale_bias
    from nmpsim.compiler.tiling.search import DEFAULT_TILING
    from nmpsim.frontends import DEFAULT_IMPORT_OPTIONS, ImportedModel, ImportOptions, import_model
    from nmpsim.frontends.model_origin import import_lir, read_model_origin
    from nmpsim.lir.constants import find_tensors_file

    options = ImportOptions(input_shapes, sample_shapes, integer_islands)
    if not isinstance(model, str | Path | ImportedModel):
        from nmpsim.quantization import QuantizedProgram  # slow to import

        if isinstance(model, QuantizedProgram):
            model = model.imported
    if not isinstance(model, ImportedModel):
        imported = import_model(Path(model), weights, tensors, options)
    elif weights is None and tensors is None and options == DEFAULT_IMPORT_OPTIONS:
        imported = model
    else:
        raise fail("ARG001", "an imported model has its own weights, tensors, shapes and integers")
    if imported is None:
        path = Path(str(model))
        exact = find_tensors_file(path) if tensors is None else Path(tensors)
        module, warnings = _read_lir(path, weights, exact)
        imported = attrs.evolve(import_lir(module, read_model_origin(path)), warnings=warnings)
    module = imported.module
    if numerics is None:
        layer_numerics = {**imported.layer_numerics, **layer_numerics}
    rescaled: tuple[RescaledBias, ...] = ()
    if rescale_biases:
        module, rescaled = rescale_bias(module)
    sliced: list[TiledLayer] = []
    all_warnings = list(imported.warnings)
    file = compile_module(
        module,
        resolve_device(device),
        numerics=imported.numerics if numerics is None else numerics,
        layer_numerics=layer_numerics,
        fuse_activations=fuse,
        slicing=DEFAULT_TILING if slicing is None else slicing,
        on_slicing=sliced.append if explain_slicing else None,
        unsigned=imported.unsigned,
        fates=imported.operators,
        normalizations=imported.normalizations,
        on_layer=progress
        and (lambda done, total, name: progress(Progress("layer", done, total, name))),
        on_warning=all_warnings.append,
    )
    return Compiled(file, tuple(all_warnings), rescaled, tuple(sliced))


def load_float_program(
    model: Path | str | ImportedModel,
    weights: Path | str | None = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    sample_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> ImportedModel:
    """Load a float network to quantize; parameters and errors as for :func:`calibrate`.

    ``sample_shapes`` is as for :func:`compile`.
    """
    from nmpsim.frontends import ImportedModel, ImportOptions, import_model
    from nmpsim.frontends.model_origin import import_lir

    if isinstance(model, ImportedModel):
        return model
    path = Path(model)
    imported = import_model(
        path, weights, None, ImportOptions(input_shapes, sample_shapes, for_quantization=True)
    )
    if imported is not None:
        return imported
    return import_lir(_read_lir(path, weights, None)[0])


def _read_lir(
    path: Path, weights: Path | str | None, tensors: Path | None
) -> tuple[Module, tuple[str, ...]]:
    """Return the verified module of LIR text with its constants, and warnings."""
    from nmpsim.lir.constants import attach_constants
    from nmpsim.lir.parser import parse_file
    from nmpsim.lir.verify import verify

    files = [] if weights is None else [Path(weights)]
    module, found = attach_constants(parse_file(path), files, tensors)
    verify(module)
    return module, found


def calibrate(
    model: Path | str | ImportedModel,
    weights: Path | str | None = None,
    calibration: Mapping[str, npt.ArrayLike] | None = None,
    *,
    profile: Path | str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> CalibratedProgram:
    """Run a float program on samples of its inputs to record the ranges of its values.

    Parameters
    ----------
    model
        An ONNX file, or LIR text with float tensors only; or one that is imported already.
    weights
        ``.npz`` with the constants of LIR by their names.
    calibration
        For each input an array with one sample after the other.
    profile
        Glow's profile of the network; ranges are then those that it recorded, and samples
        are needed for a comparison only.
    input_shapes
        Of inputs of an ONNX model, by name.

    Raises
    ------
    UserError
        LIR, CONST, INPUT, MODEL and FILE codes; QUANT001, QUANT002, QUANT005; PKG001;
        ARG001 without samples and profile.
    """
    from nmpsim.quantization import CalibratedProgram, read_profile

    if calibration is None and profile is None:
        raise fail("ARG001", "no ranges: calibration or profile is needed")
    ranges = None if profile is None else read_profile(Path(profile))
    shapes: dict[str, tuple[int, ...]] = {}
    if isinstance(model, str | Path) and calibration is not None:
        shapes = {key.removeprefix("input/"): np.shape(v) for key, v in calibration.items()}
    program = load_float_program(model, weights, input_shapes=input_shapes, sample_shapes=shapes)
    return CalibratedProgram.from_samples(program, calibration, ranges)


def quantize(
    model: Path | str | ImportedModel,
    weights: Path | str | None = None,
    calibration: Mapping[str, npt.ArrayLike] | None = None,
    *,
    profile: Path | str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    schema: str = "asymmetric",
    precision: str = "int8",
    bias_precision: str = "int32",
    per_channel: bool = False,
    bias_scale: str = "product",
    keep_float: Iterable[str] = (),
) -> QuantizedProgram:
    """Quantize a float program as Glow does; ``compile`` takes it, ``.save(path)`` writes LIR.

    Parameters
    ----------
    model
        An ONNX file, or LIR text with float tensors only; or one that is imported already.
    weights
        ``.npz`` with the constants of LIR by their names.
    calibration
        For each input an array with one sample after the other.
    profile
        Glow's profile of the network, in place of samples.
    input_shapes
        Of inputs of an ONNX model, by name.
    schema
        Asymmetric, symmetric, symmetric-with-uint8 or symmetric-with-power2-scale.
    precision
        Of activations and weights, int8 or int16.
    bias_precision
        int8, int16 or int32.
    per_channel
        A scale for each output channel of convolutions and fully connected layers.
    bias_scale
        Of these layers, product (input times weight) or result.
    keep_float
        Opcodes, and layers as :func:`find_layer` takes them, that stay float.

    Raises
    ------
    UserError
        LIR, CONST, INPUT, FILE, PKG and QUANT codes; ARG001 for an unknown word.
    """
    from nmpsim.quantization import parse_settings

    settings = parse_settings(
        schema=schema,
        precision=precision,
        bias_precision=bias_precision,
        per_channel=per_channel,
        bias_scale=bias_scale,
        keep_float=keep_float,
    )
    calibrated = calibrate(model, weights, calibration, profile=profile, input_shapes=input_shapes)
    return calibrated.quantize(settings)


def from_torch(
    model: Any,
    example: Any,
    *,
    engine: str | None = None,
    calibration: Iterable[Any] | Mapping[str, npt.ArrayLike] | None = None,
    **settings: Any,
) -> ImportedModel:
    """Import a live PyTorch model for :func:`compile`; a float one is quantized with samples.

    The model is run once on the example, and what it does is recorded: shapes and control flow are
    those of the example.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` in evaluation mode, quantized or float, or a
        ``torch.export.ExportedProgram``.
    example
        A tensor, or a tuple of them, as ``forward`` takes it.
    engine
        ``fbgemm``, ``qnnpack``, ``onednn`` or ``x86``, that a quantized model was converted
        for; ``torch.backends.quantized.engine`` if None. A model of PT2E has none.
    calibration
        For a float model examples such as ``example``, each of one or several samples;
        or for each input an array, by name. Without it a float model stays one, for
        :func:`quantize` or :func:`calibrate`.
    settings
        How to quantize, as :func:`quantize` takes it: schema, precision, per_channel ...

    Raises
    ------
    UserError
        MODEL002 (not supported), ARG001 for an unknown engine or setting, LIR codes;
        PKG001 without PyTorch; with ``calibration`` those of :func:`quantize`.
    """
    from nmpsim.frontends.torch import import_torch_module

    imported = import_torch_module(model, example, engine)
    if calibration is None:
        if settings:
            raise fail("ARG001", f"{next(iter(settings))} is for a model that is calibrated")
        return imported
    from nmpsim.quantization import get_float_inputs, stack_examples

    if not isinstance(calibration, Mapping):
        calibration = stack_examples(get_float_inputs(imported), calibration)
    return quantize(imported, calibration=calibration, **settings).imported


def save(compiled: Compiled, path: Path | str) -> str:
    """Write the bundle atomically and return its digest."""
    with new_file(Path(path)) as file:
        return compiled.file.write(file.write)


def get_device(bundle: Bundle | Compiled) -> DeviceConfig:
    """Return the device that a bundle was compiled for.

    Raises
    ------
    UserError
        ARG001 if it is not a bundle, BUN004 for a bundle without a device.
    """
    return from_settings(get_bundle(bundle).require_device())


def load(
    path: Path | str,
    patch: Path | str | None = None,
    *,
    device: DeviceConfig | None = None,
    sample_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    warn: Callable[[str], object] = warnings.warn,
) -> Bundle:
    """Read and validate a bundle; later changes of the file have no effect.

    Parameters
    ----------
    path
        The bundle's file; or a model's that :func:`compile` takes alone, which is compiled.
    patch
        Changes that the debugger has exported, made in memory only.
    device
        That a model is compiled for, the default device if None.
    sample_shapes
        For a model, as :func:`compile` takes them.
    warn
        Called with each warning about a model; those of Python, if nothing else is said.

    Raises
    ------
    UserError
        FILE001, BUN001 to BUN003; PATCH001 or PATCH002 for the patch; for a model those
        of :func:`compile`.
    """
    if is_model(Path(path)):
        compiled = compile(path, device=device, sample_shapes=sample_shapes)
        for warning in compiled.warnings:
            warn(warning)
        bundle = bundle_from_bytes(compiled.file, str(path))
    else:
        bundle = read_bundle(path)
    if patch is None:
        return bundle
    return bundle_from_bytes(apply_patch_file(bytes(bundle.file), patch, str(path)), str(path))


def is_model(path: Path) -> bool:
    """Return whether a front end reads a file; a bundle is recognized without importing one."""
    with suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(MAGIC)) == MAGIC:
                    return False
    from nmpsim.frontends import find_front_end

    return find_front_end(path) is not None


def apply_patch_file(image: bytes, patch: Path | str, path: str = "<bytes>") -> bytes:
    """Apply a patch to the bytes of a bundle file; UserError PATCH001, PATCH002."""
    from nmpsim.bundle.patch import apply_patch, load_patch

    return apply_patch(image, load_patch(Path(patch)), path)


class Shadow:
    """Evaluation of a program in real arithmetic, for any number of its runs."""

    def __init__(self, bundle: Bundle, float_weights: Path | str | None = None) -> None:
        """Load the program and its float values.

        Parameters
        ----------
        bundle
            The program; it must carry its LIR.
        float_weights
            ``.npz`` with the float values of constants by their names in the LIR,
            or an ONNX model. The default are those in the bundle, if it was quantized from a
            model; without any, only rounding and saturation are known.

        Raises
        ------
        UserError
            BUN005 if the bundle has no LIR; FILE001, CONST001, CONST003 or PKG001 for
            the float weights.
        """
        from nmpsim.analysis.shadow import ShadowEvaluation

        path = None if float_weights is None else Path(float_weights)
        self._bundle = bundle
        self._evaluation = ShadowEvaluation.load(bundle.module(), path)

    def evaluate(
        self,
        report: RunReport,
        inputs: Mapping[str, npt.NDArray[Any]],
        *,
        progress: ProgressCallback | None = None,
    ) -> RunReport:
        """Return the report of a run with the sources of each layer's error (``report.shadow``).

        Parameters
        ----------
        report
            A run of the bundle with ``save_layers=True``.
        inputs
            Inputs of that run.
        progress
            Called after every layer.

        Raises
        ------
        UserError
            ARG001 if the report has no layer outputs.
        """
        if report.layers and not report.layer_outputs and report.trap is None:
            message = "the run did not save layer outputs"
            raise fail("ARG001", message, hint="device.run(bundle, inputs, save_layers=True)")
        stored = prepare_inputs(self._bundle.metadata, inputs)

        def done(layer: ShadowLayer) -> None:
            if progress:
                name = report.get_display_name(layer.name)
                progress(Progress("layer", layer.index + 1, len(report.layers), name))

        return attrs.evolve(report, shadow=self._evaluation.evaluate(report, stored, inputs, done))


def lint(
    program: Module | Bundle | Path | str,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    *,
    numerics: str | None = None,
    float_weights: Path | str | None = None,
    original_weights: Path | str | None = None,
    original_tensors: Path | str | None = None,
    ranges: Path | str | None = None,
) -> tuple[Finding, ...]:
    """Check a program for numerical problems, most severe first; docs/lint.md lists the rules.

    Parameters
    ----------
    program
        A verified module with its exact scales, a bundle, or a file of one, of LIR or of a
        model.
    weights
        ``.npz`` with the constants of a LIR file; many rules need it.
    tensors
        JSON with its exact scales; the file next to it is taken if there is one.
    numerics
        Numerics profile; the default is the bundle's or model's, or ``glow-int``.
    float_weights
        ``.npz`` or ONNX model with the float model's weights and biases.
    original_weights
        ``.npz`` with the constants before bias types were changed.
    original_tensors
        JSON with their scales; the file next to them if there is one.
    ranges
        Glow's profile, recorded ranges of results.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, BUN, ARG, COMP and PKG.
    """
    from nmpsim.analysis.lint import References, load_subject, run_rules

    subject = load_subject(
        Path(program) if isinstance(program, str) else program,
        _path(weights),
        _path(tensors),
        numerics,
        References(
            _path(float_weights), _path(original_weights), _path(original_tensors), _path(ranges)
        ),
    )
    for warning in subject.warnings:
        warnings.warn(warning, stacklevel=2)
    return run_rules(subject).findings


def _path(file: Path | str | None) -> Path | None:
    return None if file is None else Path(file)
