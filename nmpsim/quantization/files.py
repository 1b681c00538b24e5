"""A quantized program as files: LIR, its constants, its exact scales."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import attrs
import numpy as np

from nmpsim.atomic import write_file, write_npz
from nmpsim.lir import print_module
from nmpsim.lir.constants import LIR_SUFFIXES
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import IN


class TensorFacts(TypedDict):
    """What `X.tensors.json` says about one tensor."""

    elem: str
    shape: list[int]
    scale: NotRequired[Annotated[float, "the exact scale; of a quantized tensor, as the next two"]]
    scale_hex: NotRequired[Annotated[str, "the same as C's `%a` prints it"]]
    offset: NotRequired[int]
    sha256: NotRequired[Annotated[str, "of a constant: the first 16 digits of its bytes' digest"]]


@attrs.frozen
class ProgramFiles:
    """Where a program's three files are: those that ``nmpsim compile`` finds next to the LIR."""

    lir: Path
    constants: Path
    tensors: Path

    @classmethod
    def of(cls, lir: Path) -> ProgramFiles:
        """``X.npz`` and ``X.tensors.json`` next to ``X.lir`` or ``X.lir.txt``."""
        suffix = next((s for s in LIR_SUFFIXES if lir.name.endswith(s)), "")
        stem = lir.name.removesuffix(suffix)
        return cls(lir, lir.with_name(f"{stem}.npz"), lir.with_name(f"{stem}.tensors.json"))


def write_program(module: Module, lir: Path) -> ProgramFiles:
    """Write a module; each file appears whole or not at all. Raises FILE002."""
    files = ProgramFiles.of(lir)
    write_npz(files.constants, module.constants)
    sidecar = json.dumps(tensor_facts(module), indent=1)
    write_file(files.tensors, lambda file: file.write(sidecar.encode() + b"\n"))
    text = print_module(module)
    write_file(files.lir, lambda file: file.write(text.encode()))
    return files


def tensor_facts(module: Module) -> dict[str, TensorFacts]:
    """Element, shape, exact scale and offset by key: constants, inputs, outputs, results."""
    written = {o.name for i in module.instructions for o in i.operands if o.kind != IN}
    facts: dict[str, TensorFacts] = {}
    types = {weight.name: weight.type for weight in module.weights}
    for weight in module.weights:
        kind = "const" if weight.constant else "output" if weight.name in written else "input"
        facts[f"{kind}/{weight.name}"] = _fact(weight.type)
        if weight.constant:
            data = np.ascontiguousarray(module.constants[weight.name]).tobytes()
            facts[f"{kind}/{weight.name}"]["sha256"] = hashlib.sha256(data).hexdigest()[:16]
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if isinstance(type_, TensorType):
            types[instruction.name] = type_
        elif instruction.opcode != "deallocactivation":
            stem = f"act/{instruction.number:04d}:{instruction.name}"
            for operand in instruction.operands:
                if operand.kind != IN:
                    facts[f"{stem}:{operand.name}"] = _fact(types[operand.name])
    return facts


def _fact(type_: TensorType) -> TensorFacts:
    elem, shape, quant = type_.elem, list(type_.shape), type_.quant
    if quant is None:
        return {"elem": elem, "shape": shape}
    return {
        "elem": elem,
        "shape": shape,
        "scale": quant.scale,
        "scale_hex": quant.scale.hex(),
        "offset": quant.offset,
    }
