"""Quantization of a float module in steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place, fail, locate_errors
from nmpsim.frontends.imported_model import (
    ImportedModel,
    make_imported_model,
)
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.layers import LayerEntry, find_layer
from nmpsim.lir.names import make_display_names
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import NO_WORK
from nmpsim.lir.scales import iterate_types
from nmpsim.quantization.calibrate import (
    Ranges,
    Sample,
    calibrate,
    count_values,
    group_by_value,
    split_samples,
)
from nmpsim.quantization.files import ProgramFiles, write_program
from nmpsim.quantization.graph import FloatGraph, FloatValue, build_graph
from nmpsim.quantization.parameters import Settings
from nmpsim.quantization.placement import MOVES, find_lookup_chains, plan_quantization
from nmpsim.quantization.profile import ValueRange, find_profile_ranges
from nmpsim.quantization.ranges import ValueHistogram, choose_ranges
from nmpsim.quantization.rewrite import rewrite_program
from nmpsim.quantization.scales import ValueScales


@attrs.frozen
class QuantizedResult:
    """Result of one instruction: its quantized type, or the reason why it stays float."""

    number: int
    """Number of the float instruction that makes it, or writes the last part of it."""
    name: str
    """Name of that instruction in the quantized program."""
    opcode: str
    type: TensorType
    """Type in the quantized program."""
    reason: str
    """Reason why it stays float; empty if it does not."""
    narrowed: bool
    """Whether the result has the smaller range of the activation that clips it."""
    bias_saturated: int
    """Elements of its bias that do not fit the bias's type."""

    @property
    def quantized(self) -> bool:
        """Whether the result is quantized."""
        return self.type.quant is not None


@attrs.frozen(eq=False)
class QuantizedProgram:
    """Program after quantization: the quantized module, and a description of each result."""

    imported: ImportedModel
    """The quantized module for :func:`nmpsim.compile`, and what became of the operations of the
    model's file."""
    results: tuple[QuantizedResult, ...]
    settings: Settings

    @property
    def module(self) -> Module:
        """Quantized module, including the float values of its constants."""
        return self.imported.module

    def save(self, lir: Path | str) -> ProgramFiles:
        """Write the program as ``X.lir``, ``X.npz`` and ``X.tensors.json``; return their paths.

        ``X.model.json`` is written too if the program comes from a model file. Each file is
        written atomically.

        Raises
        ------
        UserError
            FILE002 if a file cannot be written.
        """
        return write_program(self.imported, Path(lir))

    @property
    def computed(self) -> tuple[QuantizedResult, ...]:
        """Results of operations that compute values, excluding moves and fills."""
        return tuple(result for result in self.results if result.opcode not in MOVES)

    @property
    def staying_float(self) -> tuple[QuantizedResult, ...]:
        """Results that are not quantized."""
        return tuple(result for result in self.results if not result.quantized)


@attrs.frozen(eq=False)
class CalibratedProgram:
    """Float program with the recorded range of each value, ready for quantization."""

    graph: FloatGraph
    samples: Sequence[Sample]
    ranges: Mapping[FloatValue, ValueRange]
    """Whole range of each value."""
    origin: ImportedModel
    """The model that the float program comes from."""
    recorded: Ranges = attrs.field(factory=dict)
    """Ranges of inputs and results on the samples; empty for those of a profile."""

    @classmethod
    def from_samples(
        cls,
        program: Module | ImportedModel,
        arrays: Mapping[str, npt.ArrayLike] | None,
        profile: Mapping[str, ValueRange] | None = None,
    ) -> CalibratedProgram:
        """Calibrate a float program with input samples or with the ranges of a Glow profile.

        Parameters
        ----------
        program
            The float module, or an imported model.
        arrays
            Samples of each input (see :func:`split_samples`), or None.
        profile
            Glow's profile of the network, whose ranges are used instead; the samples then serve
            ``compare`` only.

        Raises
        ------
        UserError
            QUANT001 if the module is not a float one, QUANT002 for what is not finite, QUANT005
            for the profile of another network, INPUT001 and INPUT002 for the samples.
        """
        origin = program if isinstance(program, ImportedModel) else make_imported_model(program)
        inputs = find_float_inputs(origin)
        graph = build_graph(origin.module)
        samples = [] if arrays is None else split_samples(inputs, arrays)
        if profile is None:
            recorded = calibrate(graph, samples)
            return cls(graph, samples, group_by_value(graph, recorded), origin, recorded)
        return cls(graph, samples, find_profile_ranges(graph, profile), origin)

    def quantize(self, settings: Settings) -> QuantizedProgram:
        """Quantize the program; raise UserError (QUANT003) if nothing can be quantized.

        Raises
        ------
        UserError
            QUANT002 if a profile has no range for a result that needs one, QUANT003 if no
            operation can be quantized, QUANT004 for an unknown name in ``keep_float``.
        """
        program = self.quantize_unchecked(settings)
        require_quantized([program], self.graph.module)
        return program

    def choose_ranges(self, settings: Settings) -> Mapping[FloatValue, ValueRange]:
        """Choose the range of real numbers that the quantized type of each value represents.

        Raises UserError (ARG001) for a method that needs samples if there is only a profile.
        """
        if settings.range_method == "minmax":
            return self.ranges
        if not self.recorded:
            raise fail(
                "ARG001",
                f"the range method {settings.range_method!r} requires samples",
                found="a profile of ranges, without samples",
                expected="calibration samples",
                hint="Pass --calibration instead of --profile.",
            )
        chosen = choose_ranges(
            self._histograms,
            settings.range_method,
            settings.percentile,
            settings.schema,
            settings.elem,
        )
        return group_by_value(self.graph, chosen)

    @cached_property
    def _histograms(self) -> Mapping[str, ValueHistogram]:
        """ValueHistogram of each input and result on the samples."""
        return count_values(self.graph, self.samples, self.recorded)

    def quantize_unchecked(self, settings: Settings) -> QuantizedProgram:
        """Quantize the program, even if no operation can be quantized."""
        settings = _with_names(settings, self.graph.module)
        chains = find_lookup_chains(self.graph, settings) if self.origin.operators else {}
        placements = plan_quantization(self.graph, settings, chains)
        scales = ValueScales(
            self.graph, placements.quantized, self.choose_ranges(settings), settings
        )
        rewritten = rewrite_program(scales, chains)
        results = tuple(
            QuantizedResult(
                number=node.instruction.number,
                name=name,
                opcode=node.opcode,
                type=scales.choose_type(value) if value in placements.quantized else value.type,
                reason=placements.reasons.get(value, ""),
                narrowed=value in scales.narrowed,
                bias_saturated=rewritten.saturated.get(value, 0),
            )
            for value, (node, name) in rewritten.last_writers.items()
            if value == node.results[0] and not node.is_implicit
        )
        imported = ImportedModel(
            rewritten.module,
            frozenset(),
            _map_operators(self.origin.operators, rewritten.names),
            "nmp" if settings.bias_on_result else DEFAULT_NUMERICS,
            self.origin.normalizations,
        )
        return QuantizedProgram(imported, results, settings)


def find_float_inputs(program: ImportedModel) -> dict[str, TensorType]:
    """Return a float program's input types by name; raise UserError (QUANT001) if not float."""
    _require_float(program.module)
    return {value.name: value.type for value in build_graph(program.module).inputs}


def _map_operators(
    operators: Sequence[OperatorMapping], names: Mapping[str, str]
) -> tuple[OperatorMapping, ...]:
    """Return the mappings of a model's operations with the quantized program's layer names."""
    found = []
    for operator in operators:
        layers = tuple(names[name] for name in operator.layers if name in names)
        why = operator.why or ("" if layers else "no layer of its own")
        found.append(attrs.evolve(operator, layers=layers, why=why))
    return tuple(found)


def _require_float(module: Module) -> None:
    """Raise QUANT001 for a module with quantized tensors or predicates."""
    for instruction in module.instructions:
        if instruction.predicate is not None:
            raise fail(
                "QUANT001",
                f"%{instruction.name} is predicated and cannot be quantized",
                place=instruction.span.place(module.file),
                found=f"pred: {instruction.predicate}",
                expected="instructions without predicates",
            )
    # A scale of 0 marks scratch memory, whose elements mean nothing.
    quantized = [one for one in iterate_types(module) if one[1].quant and one[1].quant.scale]
    if quantized:
        name, type_, span, _ = quantized[0]
        raise fail(
            "QUANT001",
            "the program is already quantized",
            place=span.place(module.file),
            found=f"{len(quantized)} quantized tensors, the first of which is %{name} of type"
            f" {type_.elem}",
            expected="a program with float tensors only",
            hint="Compile it with `nmpsim compile`.",
        )


def _with_names(settings: Settings, module: Module) -> Settings:
    """Return the settings with layer names replaced by instruction names; raise QUANT004."""
    opcodes = {instruction.opcode for instruction in module.instructions}
    words = settings.keep_float - opcodes - {one.name for one in module.instructions}
    computing = [one for one in module.instructions if one.opcode not in NO_WORK]
    names_shown = make_display_names([one.name for one in computing])
    layers = [
        LayerEntry(index, one.number, one.span.line, one.name, display_name=shown)
        for index, (one, shown) in enumerate(zip(computing, names_shown, strict=True))
    ]
    with locate_errors(module.file):
        names = {find_layer(layers, word, "QUANT004", opcodes).name for word in sorted(words)}
    return attrs.evolve(settings, keep_float=settings.keep_float - words | names)


def require_quantized(programs: Sequence[QuantizedProgram], module: Module) -> None:
    """Raise UserError (QUANT003) unless a program has a quantized operation that computes."""
    computed = [result for program in programs for result in program.computed]
    if any(result.quantized for result in computed):
        return
    reasons = dict.fromkeys(result.reason for result in computed)
    raise fail(
        "QUANT003",
        "the program has no operation that can be quantized",
        place=Place(module.file),
        found="; ".join(reasons) or "a program without operations",
        expected="at least one operation that `nmpsim quantize` quantizes",
    )
