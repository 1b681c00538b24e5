"""Files of a quantized program: LIR, constants and exact scales."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import attrs
import numpy as np

from nmpsim.atomic import write_file, write_npz
from nmpsim.frontends.imported_model import (
    SUFFIX,
    ImportedModel,
    ModelMetadata,
)
from nmpsim.lir.constants import CONSTANT_PREFIX, FLOAT_PREFIX, LIR_SUFFIXES
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import IN, NO_WORK
from nmpsim.lir.printer import format_module
from nmpsim.lir.scales import iterate_types


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
