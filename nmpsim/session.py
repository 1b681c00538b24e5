"""The Python interface: quantize, compile, lint and load programs, evaluate errors of runs.

Modules that only one function needs are imported in it, so that a run does not import the compiler.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.atomic import open_new_file
from nmpsim.bundle import Bundle, BundleFile, get_bundle, parse_bundle, read_bundle
from nmpsim.bundle.elf import MAGIC
from nmpsim.config import DeviceConfig, make_device_config, resolve_device
from nmpsim.core.device import Device as CoreDevice
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.limits import Limits
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.diagnostics import fail, refuse_options
from nmpsim.input_files import read_first_bytes
from nmpsim.records import frozen
from nmpsim.report.analyses import ShadowLayer
from nmpsim.report.data import RunReport

if TYPE_CHECKING:
    from nmpsim.analysis.lint import LocatedFinding
    from nmpsim.compiler.passes.rescale_bias import RescaledBias
    from nmpsim.compiler.tiling.search import TiledLayer
    from nmpsim.frontends import ImportedModel
    from nmpsim.lir.nodes import Module
    from nmpsim.quantization import CalibratedProgram, QuantizedProgram

FilePath = Path | str
Shapes = Mapping[str, tuple[int, ...]]
"""Input -> shape."""
NO_SHAPES: Shapes = MappingProxyType({})

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


class SessionDevice(CoreDevice):
    """Simulated device that also saves the outputs of layers that stay in scratchpads.

    Parameters are those of :class:`nmpsim.core.device.Device`.
    """

    _last_removal: tuple[Bundle, Bundle] | None = None
    """The last bundle with chains, and the same program without chains."""

    def _remove_chains(self, bundle: Bundle) -> Bundle:
        if not any(layer.in_scratchpads for layer in bundle.metadata.layers):
            return bundle
        if self._last_removal is None or self._last_removal[0] is not bundle:
            from nmpsim.analysis.program import compile_without_chains

            self._last_removal = bundle, compile_without_chains(bundle, "simple")
        return self._last_removal[1]


Device = SessionDevice


@frozen
class Compiled:
    """Compiled program with its bundle file and the compiler's warnings."""

    file: BundleFile
    """Contents of the bundle file, generated when written; only constants are in memory."""
    warnings: tuple[str, ...]
    rescaled_biases: tuple[RescaledBias, ...] = ()
    """Biases that ``rescale_biases`` changed, in the order of their layers."""
    tiling: tuple[TiledLayer, ...] = ()
    """Tiling of each device layer, if ``explain_tiling`` was set."""

    def __repr__(self) -> str:
        return f"<Compiled {repr(self.bundle)[1:-1]}>"

    @cached_property
    def image(self) -> bytes:
        """Bytes of the bundle file, generated at first use."""
        return bytes(self.file)

    @cached_property
    def bundle(self) -> Bundle:
        """Compiled program as a bundle."""
        return parse_bundle(self.file, "<compiled>")


def compile(
    model: FilePath | ImportedModel | QuantizedProgram,
    weights: FilePath | None = None,
    tensors: FilePath | None = None,
    *,
    input_shapes: Shapes = NO_SHAPES,
    sample_shapes: Shapes = NO_SHAPES,
    integer_islands: bool | None = None,
    device: DeviceConfig | None = None,
    numerics: str | None = None,
    layer_numerics: Mapping[str, str] = MappingProxyType({}),
    rescale_biases: bool = False,
    fuse: bool = True,
    tiling: str | None = None,
    images_per_core: int = 0,
    kernels: Mapping[str, str] = MappingProxyType({}),
    explain_tiling: bool = False,
    progress: ProgressCallback | None = None,
) -> Compiled:
    """Compile a model for a device.

    Parameters
    ----------
    model : path-like, ImportedModel or QuantizedProgram
        A ``.tflite`` or ``.onnx`` file, or LIR text of Glow's ``-dump-ir``, recognized by its first
        bytes; or the result of :func:`from_torch` or :func:`quantize`.
    weights : path-like, optional
        ``.npz`` file with the constants of LIR text, by their names.
    tensors : path-like, optional
        JSON file with the exact scales of LIR text; by default the file next to the text, if any.
    input_shapes : mapping of str to tuple of int
        Shapes of inputs of an ONNX model, by name. Other dimensions that the file leaves open are
        1.
    sample_shapes : mapping of str to tuple of int
        Shapes of sample arrays by input (an empty name for the only input), which give dimensions
        that the file leaves open. The first dimension, the batch, stays 1.
    integer_islands : bool, optional
        Whether to compute on integers what ONNX Runtime computes in float32 between conversions; by
        default only in models of 16 bits.
    device : DeviceConfig, optional
        The device; by default :func:`default_device`.
    numerics : str, optional
        Numerics profile, a name of ``nmpsim.isa.profiles.NUMERICS``, or the path of a formulas
        file, ``*.toml``. The default depends on the model: ``glow-int`` for LIR, ``q31`` for
        TFLite, ``float`` for ONNX, the engine's for PyTorch.
    layer_numerics : mapping of str to str
        Profiles of single layers; :func:`find_layer` defines the names. An activation and the layer
        into which it is fused share a profile, unless both are named.
    rescale_biases : bool
        Whether to requantize biases to the scale of each layer's result first.
    fuse : bool
        Whether to fuse activations into the layers before them.
    tiling : str, optional
        Tiling mode: ``chain`` (consecutive layers may keep their results in scratchpads, the
        default), ``layer`` (each layer separately, with all costs of the device), ``bytes``
        (without DRAM bursts and rows) or ``simple`` (without search).
    images_per_core : int
        Complete images that each core computes, at most 256. Inputs and outputs are then a batch
        with this number of images for each core, stacked along the first axis. By default all cores
        compute one image together.
    kernels : mapping of str to str
        C functions that compute layers: ``FILE.elf`` or ``FILE.elf:FUNCTION`` by layer, as in
        ``layer_numerics``; all functions are in one file (docs/c.md).
    explain_tiling : bool
        Whether to record the tilings that were tried, in ``Compiled.tiling``.
    progress : callable, optional
        Called with a :class:`Progress` before each layer is tiled.

    Returns
    -------
    Compiled
        The bundle, with warnings.

    Raises
    ------
    UserError
        LIR, CONST, COMP, MODEL and FILE codes, several at once where possible.
    """
    from nmpsim.bundle.formulas import select_numerics
    from nmpsim.compiler.c_kernels import read_kernels
    from nmpsim.compiler.driver import compile_module
    from nmpsim.compiler.passes.rescale_bias import rescale_bias
    from nmpsim.compiler.tiling.search import DEFAULT_TILING
    from nmpsim.frontends import ImportedModel, ImportOptions, import_model
    from nmpsim.frontends.imported_model import make_imported_model, read_model_metadata
    from nmpsim.lir.constants import find_tensors_file

    options = ImportOptions(input_shapes, sample_shapes, integer_islands)
    if not isinstance(model, str | Path | ImportedModel):
        from nmpsim.quantization import QuantizedProgram  # slow to import

        if isinstance(model, QuantizedProgram):
            model = model.imported
    if not isinstance(model, ImportedModel):
        imported = import_model(Path(model), weights, tensors, options)
    else:
        given = {
            "weights": weights is not None,
            "tensors": tensors is not None,
            "input_shapes": input_shapes,
            "sample_shapes": sample_shapes,
            "integer_islands": integer_islands is not None,
        }
        hint = "Leave out these arguments, or pass the path of the model file."
        refuse_options(given, "with an imported model", hint)
        imported = model
    if imported is None:
        path = Path(str(model))
        exact = find_tensors_file(path) if tensors is None else Path(tensors)
        module, warnings = _read_lir(path, weights, exact)
        imported = attrs.evolve(
            make_imported_model(module, read_model_metadata(path)), warnings=warnings
        )
    module = imported.module
    formulas = None
    if numerics is not None:
        numerics, formulas = select_numerics(numerics)
    else:
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
        formulas=formulas,
        fuse_activations=fuse,
        tiling=DEFAULT_TILING if tiling is None else tiling,
        images_per_core=images_per_core,
        kernels=read_kernels(kernels),
        on_tiling=sliced.append if explain_tiling else None,
        unsigned=imported.unsigned,
        operators=imported.operators,
        normalizations=imported.normalizations,
        on_layer=progress
        and (lambda done, total, name: progress(Progress("layer", done, total, name))),
        on_warning=all_warnings.append,
    )
    return Compiled(file, tuple(all_warnings), rescaled, tuple(sliced))


def load_float_program(
    model: FilePath | ImportedModel,
    weights: FilePath | None = None,
    *,
    input_shapes: Shapes = NO_SHAPES,
    sample_shapes: Shapes = NO_SHAPES,
) -> ImportedModel:
    """Load a float network for quantization, with the parameters of :func:`calibrate`.

    ``sample_shapes`` is as for :func:`compile`.
    """
    from nmpsim.frontends import ImportedModel, ImportOptions, import_model
    from nmpsim.frontends.imported_model import make_imported_model

    if isinstance(model, ImportedModel):
        return model
    path = Path(model)
    imported = import_model(
        path, weights, None, ImportOptions(input_shapes, sample_shapes, for_quantization=True)
    )
    if imported is not None:
        return imported
    return make_imported_model(_read_lir(path, weights, None)[0])


def _read_lir(
    path: Path, weights: FilePath | None, tensors: Path | None
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
    model: FilePath | ImportedModel,
    weights: FilePath | None = None,
    calibration: Mapping[str, npt.ArrayLike] | None = None,
    *,
    profile: FilePath | None = None,
    input_shapes: Shapes = NO_SHAPES,
) -> CalibratedProgram:
    """Record the ranges of a float program's values on samples of its inputs.

    Parameters
    ----------
    model : path-like or ImportedModel
        A float ONNX or TFLite file, LIR text with float tensors only, or an imported model.
    weights : path-like, optional
        ``.npz`` file with the constants of LIR text, by their names.
    calibration : mapping of str to array_like, optional
        Samples of each input, stacked along the first axis: float [samples, ...].
    profile : path-like, optional
        Glow's profile of the network, whose recorded ranges are used. Samples are then needed for a
        comparison only.
    input_shapes : mapping of str to tuple of int
        Shapes of inputs of an ONNX model, by name.

    Returns
    -------
    CalibratedProgram
        The program with its recorded ranges.

    Raises
    ------
    UserError
        LIR, CONST, INPUT, MODEL and FILE codes; QUANT001, QUANT002, QUANT005; PKG001; ARG001
        without samples and profile.
    """
    from nmpsim.quantization import CalibratedProgram, read_profile

    if calibration is None and profile is None:
        raise fail(
            "ARG001",
            "the ranges are unknown: neither calibration samples nor a profile is passed",
            hint="Pass `calibration=` or `profile=`.",
        )
    ranges = None if profile is None else read_profile(Path(profile))
    shapes: dict[str, tuple[int, ...]] = {}
    if isinstance(model, str | Path) and calibration is not None:
        shapes = {key.removeprefix("input/"): np.shape(v) for key, v in calibration.items()}
    program = load_float_program(model, weights, input_shapes=input_shapes, sample_shapes=shapes)
    return CalibratedProgram.from_samples(program, calibration, ranges)


def quantize(
    model: FilePath | ImportedModel,
    weights: FilePath | None = None,
    calibration: Mapping[str, npt.ArrayLike] | None = None,
    *,
    profile: FilePath | None = None,
    input_shapes: Shapes = NO_SHAPES,
    schema: str = "asymmetric",
    precision: str = "int8",
    bias_precision: str = "int32",
    per_channel: bool = False,
    bias_scale: str = "product",
    range_method: str = "minmax",
    percentile: float | None = None,
    keep_float: Iterable[str] = (),
) -> QuantizedProgram:
    """Quantize a float program as Glow does.

    Parameters
    ----------
    model : path-like or ImportedModel
        A float ONNX or TFLite file, LIR text with float tensors only, or an imported model.
    weights : path-like, optional
        ``.npz`` file with the constants of LIR text, by their names.
    calibration : mapping of str to array_like, optional
        Samples of each input, stacked along the first axis: float [samples, ...].
    profile : path-like, optional
        Glow's profile of the network, in place of samples.
    input_shapes : mapping of str to tuple of int
        Shapes of inputs of an ONNX model, by name.
    schema : str
        ``asymmetric``, ``symmetric``, ``symmetric-with-uint8`` or ``symmetric-with-power2-scale``.
    precision : str
        Type of activations and weights: ``int8`` or ``int16``.
    bias_precision : str
        Type of biases: ``int8``, ``int16`` or ``int32``.
    per_channel : bool
        Whether convolutions and fully connected layers have a scale for each output channel.
    bias_scale : str
        Scale of biases: ``product`` (input times weights) or ``result``.
    range_method : str
        How the range of a tensor follows from its values on the samples: ``minmax``,
        ``percentile``, ``mse`` (least square error) or ``kl`` (least divergence).
    percentile : float, optional
        Share of values in percent that ``percentile`` keeps; by default 99.99.
    keep_float : iterable of str
        Opcodes and layers that stay float; :func:`find_layer` defines the names of layers.

    Returns
    -------
    QuantizedProgram
        A program for :func:`compile`; its method ``save`` writes LIR text.

    Raises
    ------
    UserError
        LIR, CONST, INPUT, FILE, PKG and QUANT codes; ARG001 for an unknown setting.
    """
    from nmpsim.quantization import parse_settings

    settings = parse_settings(
        schema=schema,
        precision=precision,
        bias_precision=bias_precision,
        per_channel=per_channel,
        bias_scale=bias_scale,
        range_method=range_method,
        percentile=percentile,
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
    """Import a PyTorch model for :func:`compile`.

    The model is run once on the example to record its operations, so the shapes and the control
    flow are those of the example.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        A model in evaluation mode, quantized or float.
    example : Tensor or tuple of Tensor
        Arguments of ``forward``.
    engine : str, optional
        Engine that a quantized model was converted for: ``fbgemm``, ``qnnpack``, ``onednn`` or
        ``x86``; by default ``torch.backends.quantized.engine``. A model of PT2E has no engine.
    calibration : iterable or mapping of str to array_like, optional
        Samples with which a float model is quantized: examples like ``example``, or arrays by
        input. A float model without samples stays float, for :func:`quantize` or :func:`calibrate`.
    **settings
        Settings of the quantization, as for :func:`quantize`: schema, precision, per_channel, ...

    Returns
    -------
    ImportedModel
        The model for :func:`compile`.

    Raises
    ------
    UserError
        MODEL002 for an unsupported model, ARG001 for an unknown engine or setting, LIR codes,
        PKG001 without PyTorch; with ``calibration`` also those of :func:`quantize`.
    """
    from nmpsim.frontends.torch import import_torch_module

    imported = import_torch_module(model, example, engine)
    if calibration is None:
        if settings:
            raise fail(
                "ARG001",
                f"{next(iter(settings))} requires calibration",
                hint="Pass `calibration=`, or leave out the setting.",
            )
        return imported
    from nmpsim.quantization import find_float_inputs, stack_examples

    if not isinstance(calibration, Mapping):
        calibration = stack_examples(find_float_inputs(imported), calibration)
    return quantize(imported, calibration=calibration, **settings).imported


def save(compiled: Compiled, path: FilePath) -> str:
    """Write a compiled program to a bundle file and return the digest of the file.

    The file is written completely or not at all.

    Parameters
    ----------
    compiled : Compiled
        The program.
    path : path-like
        The file.

    Returns
    -------
    str
        Digest of the file.

    Raises
    ------
    UserError
        FILE002 if the file cannot be written.
    """
    with open_new_file(Path(path)) as file:
        return compiled.file.write(file.write)


def get_device(bundle: Bundle | Compiled) -> DeviceConfig:
    """Return the device that a program was compiled for.

    Raises
    ------
    UserError
        ARG001 if it is not a bundle, BUN004 for a bundle without a device.
    """
    return make_device_config(get_bundle(bundle).require_device())


def load(
    path: FilePath,
    patch: FilePath | None = None,
    *,
    device: DeviceConfig | None = None,
    sample_shapes: Shapes = NO_SHAPES,
    warn: Callable[[str], object] = warnings.warn,
) -> Bundle:
    """Load a bundle, or compile a model file.

    Parameters
    ----------
    path : path-like
        A bundle file, or a model file that :func:`compile` accepts alone. Later changes of the file
        have no effect.
    patch : path-like, optional
        Changes that the debugger has exported; they are made in memory only. As in the debugger, a
        program with chains is compiled again without them.
    device : DeviceConfig, optional
        Device that a model is compiled for; by default :func:`default_device`.
    sample_shapes : mapping of str to tuple of int
        Shapes of sample arrays for a model, as for :func:`compile`.
    warn : callable
        Called with each warning about a model; by default :func:`warnings.warn`.

    Returns
    -------
    Bundle
        The validated program.

    Raises
    ------
    UserError
        FILE001, BUN001 to BUN003; PATCH001 or PATCH002 for the patch; for a model the errors of
        :func:`compile`.
    """
    if is_model(Path(path)):
        compiled = compile(path, device=device, sample_shapes=sample_shapes)
        for warning in compiled.warnings:
            warn(warning)
        bundle = parse_bundle(compiled.file, str(path))
    else:
        bundle = read_bundle(path)
    if patch is None:
        return bundle
    from nmpsim.analysis.program import compile_without_chains

    bundle = compile_without_chains(bundle)  # the program that the debugger changed
    return parse_bundle(apply_patch_file(bytes(bundle.file), patch, str(path)), str(path))


def is_model(path: Path) -> bool:
    """Return whether a file is a model that a front end reads, not a bundle or LIR text."""
    if read_first_bytes(path, len(MAGIC)) == MAGIC:
        return False
    from nmpsim.frontends import find_front_end

    return find_front_end(path) is not None


def apply_patch_file(image: bytes, patch: FilePath, path: str = "<bytes>") -> bytes:
    """Apply a patch file to a bundle's bytes; raise UserError (PATCH001, PATCH002) if invalid."""
    from nmpsim.bundle.patch import apply_patch, load_patch

    return apply_patch(image, load_patch(Path(patch)), path)


class Shadow:
    """Shadow evaluator that compares runs of a program with real arithmetic."""

    def __init__(self, bundle: Bundle, float_weights: FilePath | None = None) -> None:
        """Load the float values of a program's constants.

        Parameters
        ----------
        bundle : Bundle
            The program, which must carry its LIR.
        float_weights : path-like, optional
            ``.npz`` file with float values of constants by their names in the LIR, or an ONNX
            model. The default is the values in the bundle, if it was quantized from a model;
            without values, only rounding and saturation are known.

        Raises
        ------
        UserError
            BUN005 if the bundle has no LIR; FILE001, CONST001, CONST003 or PKG001 for the float
            weights.
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
        """Return the report of a run with each layer's errors by source in ``report.shadow``.

        Parameters
        ----------
        report : RunReport
            Report of a run of the program with ``save_layers=True``.
        inputs : mapping of str to ndarray
            Inputs of that run.
        progress : callable, optional
            Called with a :class:`Progress` after every layer.

        Raises
        ------
        UserError
            ARG001 if the report has no layer outputs, INPUT002 for an infinite input.
        """
        if report.layers and not report.layer_outputs and report.trap is None:
            message = "the report contains no layer outputs"
            raise fail(
                "ARG001", message, hint="Run with device.run(bundle, inputs, save_layers=True)."
            )
        stored = prepare_inputs(self._bundle, inputs)

        def done(layer: ShadowLayer) -> None:
            if progress:
                name = report.get_display_name(layer.name)
                progress(Progress("layer", layer.index + 1, len(report.layers), name))

        return attrs.evolve(report, shadow=self._evaluation.evaluate(report, stored, inputs, done))


def lint(
    program: Module | Bundle | FilePath,
    weights: FilePath | None = None,
    tensors: FilePath | None = None,
    *,
    numerics: str | None = None,
    float_weights: FilePath | None = None,
    original_weights: FilePath | None = None,
    original_tensors: FilePath | None = None,
    ranges: FilePath | None = None,
) -> tuple[LocatedFinding, ...]:
    """Check a program for numerical problems without running it.

    Parameters
    ----------
    program : Module, Bundle or path-like
        A verified module with its exact scales, a bundle, or a file: a bundle, LIR text or a model.
    weights : path-like, optional
        ``.npz`` file with the constants of LIR text; many rules need it.
    tensors : path-like, optional
        JSON file with the exact scales of LIR text; by default the file next to the text, if any.
    numerics : str, optional
        Numerics profile; by default the bundle's or the model's, or ``glow-int``.
    float_weights : path-like, optional
        ``.npz`` file or ONNX model with weights and biases of the float model.
    original_weights : path-like, optional
        ``.npz`` file with the constants before bias types were changed.
    original_tensors : path-like, optional
        JSON file with their scales; by default the file next to them, if any.
    ranges : path-like, optional
        Glow's profile with recorded ranges of results.

    Returns
    -------
    tuple of Finding
        Findings, most severe first; docs/lint.md describes the rules.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, BUN, ARG, COMP and PKG.
    """
    from nmpsim.analysis.lint import ReferenceFiles, load_subject, run_rules

    subject = load_subject(
        Path(program) if isinstance(program, str) else program,
        _path(weights),
        _path(tensors),
        numerics,
        ReferenceFiles(
            _path(float_weights), _path(original_weights), _path(original_tensors), _path(ranges)
        ),
    )
    for warning in subject.program.warnings:
        warnings.warn(warning, stacklevel=2)
    return run_rules(subject).findings


def _path(file: FilePath | None) -> Path | None:
    return None if file is None else Path(file)
