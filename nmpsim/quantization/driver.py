"""Quantization of a float module in steps, and the files of the quantized program."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.atomic import write_file, write_npz
from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place, fail, locate_errors
from nmpsim.frontends.imported_model import (
    SUFFIX,
    ImportedModel,
    ModelMetadata,
    make_imported_model,
)
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.lir.constants import CONSTANT_PREFIX, FLOAT_PREFIX, LIR_SUFFIXES
from nmpsim.lir.layers import LayerEntry, find_layer, make_display_names
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import IN, NO_WORK
from nmpsim.lir.printer import format_module
from nmpsim.lir.scales import iterate_types
from nmpsim.quantization.calibrate import Sample, calibrate, split_samples
from nmpsim.quantization.graph import FloatGraph, FloatValue, build_graph
from nmpsim.quantization.parameters import Settings
from nmpsim.quantization.placement import MOVES, find_lookup_chains, plan_quantization
from nmpsim.quantization.profile import ValueRange, find_profile_ranges
from nmpsim.quantization.rewrite import rewrite_program
from nmpsim.quantization.scales import ValueScales

# Files of a quantized program: LIR, constants and exact scales.


class TensorEntry(TypedDict):
    """Entry for one tensor in ``X.tensors.json``: type, shape, exact scale and offset."""

    elem: str
    shape: list[int]
    name: NotRequired[Annotated[str, "of the tensor, if it holds : or /, as the key does"]]
    scale: NotRequired[Annotated[float, "the exact scale; of a quantized tensor, as the next two"]]
    scale_hex: NotRequired[Annotated[str, "the same as C's `%a` prints it"]]
    offset: NotRequired[int]
    sha256: NotRequired[Annotated[str, "of a constant: the first 16 digits of its bytes' digest"]]


@attrs.frozen
class ProgramFiles:
    """Files of a quantized program: paths of LIR, constants, scales and metadata."""

    lir: Path
    constants: Path
    tensors: Path
    model: Path
    """File of a program that comes from a model's file."""

    @classmethod
    def from_lir(cls, lir: Path) -> ProgramFiles:
        """Return the paths for an LIR file: the file itself, and files with the same stem."""
        suffix = next((s for s in LIR_SUFFIXES if lir.name.endswith(s)), "")
        stem = lir.name.removesuffix(suffix)
        others = (lir.with_name(stem + end) for end in (".npz", ".tensors.json", SUFFIX))
        return cls(lir, *others)

    def list_written_files(self, program: ImportedModel) -> tuple[Path, ...]:
        """Return the paths that :func:`write_program` writes for a program."""
        own = (self.lir, self.constants, self.tensors)
        return (*own, self.model) if program.operators else own


def write_program(program: ImportedModel, lir: Path) -> ProgramFiles:
    """Write the files of a quantized program, each atomically; return their paths.

    For a program from a model file, they include the float values of the constants and the origin
    of each layer.

    Raises
    ------
    UserError
        FILE002 if a file cannot be written.
    """
    files, module = ProgramFiles.from_lir(lir), program.module
    arrays = {_key(name): values for name, values in module.constants.items()}
    if program.operators:
        arrays |= {FLOAT_PREFIX + name: values for name, values in module.floats.items()}
        origin = ModelMetadata(program.operators, program.normalizations).to_json()
        write_file(files.model, origin)
    write_npz(files.constants, arrays)
    sidecar = json.dumps(make_tensor_entries(module), indent=1)
    write_file(files.tensors, sidecar.encode() + b"\n")
    text = format_module(module)
    write_file(files.lir, text)
    return files


def _key(name: str) -> str:
    """Return the key of a constant's array: its name, unless that could be an absolute path."""
    return CONSTANT_PREFIX + name if re.match(r"[/\\]|[A-Za-z]:", name) else name


def make_tensor_entries(module: Module) -> dict[str, TensorEntry]:
    """Return the entries of ``X.tensors.json`` for the weights and results of a module."""
    written = {o.name for i in module.instructions for o in i.operands if o.kind != IN}
    facts: dict[str, TensorEntry] = {}
    types = {name: type_ for name, type_, *_ in iterate_types(module)}
    for weight in module.weights:
        kind = "const" if weight.constant else "output" if weight.name in written else "input"
        facts[f"{kind}/{weight.name}"] = _fact(weight.name, weight.type)
        if weight.constant:
            data = np.ascontiguousarray(module.constants[weight.name]).tobytes()
            facts[f"{kind}/{weight.name}"]["sha256"] = hashlib.sha256(data).hexdigest()[:16]
    for instruction in module.instructions:
        if instruction.opcode not in NO_WORK - {"touch"}:
            stem = f"act/{instruction.number:04d}:{instruction.name}"
            for operand in instruction.operands:
                if operand.kind != IN:
                    facts[f"{stem}:{operand.name}"] = _fact(operand.name, types[operand.name])
    return facts


def _fact(name: str, type_: TensorType) -> TensorEntry:
    fact: TensorEntry = {"elem": type_.elem, "shape": list(type_.shape)}
    if ":" in name or "/" in name:
        fact["name"] = name
    if (quant := type_.quant) is not None:
        fact["scale"] = quant.scale
        fact["scale_hex"] = quant.scale.hex()
        fact["offset"] = quant.offset
    return fact


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
    origin: ImportedModel
    """The model that the float program comes from."""

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
            return cls(graph, samples, calibrate(graph, samples), origin)
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

    def quantize_unchecked(self, settings: Settings) -> QuantizedProgram:
        """Quantize the program, even if no operation can be quantized."""
        settings = _with_names(settings, self.graph.module)
        chains = find_lookup_chains(self.graph, settings) if self.origin.operators else {}
        placements = plan_quantization(self.graph, settings, chains)
        scales = ValueScales(self.graph, placements.quantized, self.ranges, settings)
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
