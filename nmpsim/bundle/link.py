"""Bundles from ELF programs: metadata with tensors and layers is added to the file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from nmpsim.bundle import elf
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST, META
from nmpsim.bundle.metadata import Layer, Metadata, Tensor
from nmpsim.bundle.read import PROGRAM_OPCODE, Bundle, parse_bundle
from nmpsim.bundle.schema import format_metadata
from nmpsim.diagnostics import Place, UserError, did_you_mean, fail
from nmpsim.lir.nodes import ELEM_DTYPES

_TENSOR = re.compile(
    r"(?P<name>[^:]+):(?P<elem>\w+)\[(?P<shape>\d{1,10}(?:x\d{1,10})*)\]"
    r"(?:@(?P<scale>[^,]+),(?P<offset>-?\d{1,10}))?"
)
_SECTION_COUNT_OFFSET, _SECTIONS_OFFSET = 48, 32
"""Offsets of the number of sections, and of their headers' offset, in the ELF header."""


def link_program(
    program: Bundle,
    inputs: Sequence[str],
    outputs: Sequence[str],
    layers: Sequence[str],
    device: Mapping[str, Any],
) -> bytes:
    """Return the bytes of a bundle: the file of an ELF program with metadata.

    Parameters
    ----------
    program
        An ELF program without metadata.
    inputs, outputs
        Tensors as ``NAME:TYPE[SHAPE]``, with ``@SCALE,OFFSET`` if quantized. The name is that of a
        variable of the program, which holds the tensor.
    layers
        Layers as ``NAME`` or ``NAME:OUTPUT``, in order; barrier 0 ends the first layer, barrier 1
        the second one. Without layers, the program has one.
    device
        Settings of the device.

    Raises
    ------
    UserError
        ARG001 for an invalid tensor or layer, or a program that has metadata; BUN002 if a tensor
        does not lie in writable memory.
    """
    if program.has_metadata:
        raise fail(
            "ARG001",
            "the file is a bundle with metadata",
            place=Place(program.path),
            expected="an ELF program",
            hint="Link the program without metadata.",
        )
    made = program.metadata
    found_inputs = tuple(_parse_tensor(program, text, "--input") for text in inputs)
    found_outputs = tuple(_parse_tensor(program, text, "--output") for text in outputs)
    tensors = {tensor.name: tensor for tensor in (*found_inputs, *found_outputs)}
    found = tuple(_parse_layer(made, tensors, index, one) for index, one in enumerate(layers))
    if not layers and found_outputs:
        found = (attrs.evolve(made.layers[0], output=found_outputs[0]),)
    found = found or made.layers
    steps = (attrs.evolve(made.steps[0], layers=tuple(range(len(found)))),)
    metadata = attrs.evolve(
        made,
        device=dict(device),
        inputs=found_inputs,
        outputs=found_outputs,
        layers=found,
        steps=steps,
    )
    data = _add_metadata(bytes(program.file), program.path, metadata)
    parse_bundle(data, program.path)
    return data


def _parse_tensor(program: Bundle, text: str, option: str) -> Tensor:
    match = _TENSOR.fullmatch(text)
    if match is None or match["elem"] not in ELEM_DTYPES:
        raise _invalid(
            f"the tensor of {option} is invalid", text, "NAME:TYPE[SHAPE], such as x:i8[1x4x4x3]"
        )
    name = match["name"]
    if name not in program.symbols:
        hint = did_you_mean(name, program.symbols) or "Define a global variable with this name."
        raise fail(
            "ARG001",
            f"the program has no variable for the tensor of {option}",
            place=Place(program.path),
            found=name,
            hint=hint,
        )
    scale = None
    if match["scale"] is not None:
        try:
            scale = float(match["scale"])
        except ValueError as error:
            raise _invalid("the scale is not a number", text, "x:i8[16]@0.5,-3") from error
    tensor = Tensor(
        name,
        match["elem"],
        tuple(map(int, match["shape"].split("x"))),
        program.symbols[name],
        scale,
        None if scale is None else int(match["offset"]),
    )
    _check_size(program, tensor)
    return tensor


def _check_size(program: Bundle, tensor: Tensor) -> None:
    """Raise UserError (ARG001) if a tensor is larger than the variable that holds it."""
    size = program.symbol_sizes[tensor.name]
    needed = ELEM_DTYPES[tensor.elem].itemsize
    for dimension in tensor.shape:
        needed *= dimension
    if needed > size:
        raise fail(
            "ARG001",
            f"the variable {tensor.name} is too small for the tensor",
            place=Place(program.path),
            found=f"a variable of {size} bytes",
            expected=f"at least {needed} bytes",
            hint="Correct the shape or the type of the tensor.",
        )


def _parse_layer(made: Metadata, tensors: Mapping[str, Tensor], index: int, text: str) -> Layer:
    name, _, output = text.partition(":")
    if not name or (output and output not in tensors):
        raise _invalid("the layer of --layer is invalid", text, "NAME or NAME:OUTPUT")
    tensor = tensors[output] if output else made.layers[0].output
    return Layer(index, name, index, 0, PROGRAM_OPCODE, "device", tensor, name, barrier=index)


def _invalid(message: str, found: str, expected: str) -> UserError:
    return fail(
        "ARG001", message, found=found[:80], expected=expected, hint="See docs/c.md for examples."
    )


def _add_metadata(data: bytes, path: str, metadata: Metadata) -> bytes:
    """Return an ELF file with the sections of a bundle after its contents."""
    header = elf.HEADER.unpack_from(data)
    offset, size, count, names_index = header[6], header[11], header[12], header[13]
    file = ElfFile(memoryview(data), path)
    if not count or not file.sections or size != elf.SECTION_HEADER.size:
        raise fail(
            "ARG001",
            "the program has no section headers",
            place=Place(path),
            hint="Link the program without stripping its section headers.",
        )
    headers = [
        list(elf.SECTION_HEADER.unpack_from(data, offset + size * index)) for index in range(count)
    ]
    start = headers[names_index][4]
    names = data[start : start + headers[names_index][5]]
    body = data + bytes(-len(data) % 4)
    digest_at = 0
    for name, contents in ((META, format_metadata(metadata)), (DIGEST, bytes(DIGEST_BYTES))):
        digest_at = len(body)
        headers.append([len(names), elf.SHT_PROGBITS, 0, 0, digest_at, len(contents), 0, 0, 4, 0])
        names += name.encode() + b"\0"
        body += contents + bytes(-len(contents) % 4)
    headers[names_index][4:6] = len(body), len(names)
    body += names + bytes(-len(names) % 4)
    result = bytearray(body)
    result[_SECTIONS_OFFSET : _SECTIONS_OFFSET + 4] = len(body).to_bytes(4, "little")
    count_at = _SECTION_COUNT_OFFSET
    result[count_at : count_at + 2] = len(headers).to_bytes(2, "little")
    result += b"".join(elf.SECTION_HEADER.pack(*one) for one in headers)
    result[digest_at : digest_at + DIGEST_BYTES] = compute_digest(memoryview(result), digest_at)
    return bytes(result)
