"""Layers that C functions of an ELF file compute: the functions, and the records they get."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from nmpsim.bundle.layout import KERNEL_BASE, RW_BASE
from nmpsim.bundle.read import Bundle, read_bundle
from nmpsim.compiler.assign import list_layer_operations
from nmpsim.compiler.operations import BufferView, Operation, compute_row_major_strides
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.tiling.plan import LayerPlan, TileInstructions
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, UserError, fail, quote
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.table import DESCRIPTORS, KERNEL_RECORDS, SCRATCHPAD_BASE, Descriptor
from nmpsim.lir.layers import find_operations

DEFAULT_FUNCTION = "kernel"
"""Function of an ELF file that computes a layer, if no other one is named."""
_HINT = "Link it with `riscv64-unknown-elf-gcc $(nmpsim c-flags --kernel) kernel.c -o kernel.elf`."
_STACK, _GLOBALS, _THREAD = "__stack_top", "__global_pointer$", "__tls_base"
_STACK_ALIGNMENT = 16
_TENSOR, _LAYER = KERNEL_RECORDS["tensor"], KERNEL_RECORDS["layer"]
_TYPES = next(word.choices for word in _TENSOR if word.name == "type")
_DIMENSIONS = sum(word.name.startswith("size_") for word in _TENSOR)


@attrs.frozen
class KernelCall:
    """Call of a C function: the registers that the function finds, and its address."""

    function: int
    record: int
    """Address of the layer's record."""
    stack: int
    globals: int
    thread: int


@attrs.frozen(eq=False)
class KernelProgram:
    """ELF file with the functions that compute layers."""

    program: Bundle
    functions: Mapping[str, str]
    """Function by layer, as for :func:`~nmpsim.lir.layers.find_layer`."""

    def find_layers(self, layers: Sequence[Operation]) -> dict[int, str]:
        """Return the function of each layer with a kernel, by the index of the layer.

        Raises
        ------
        UserError
            COMP001 for an unknown layer, a part of a fused layer, or a layer of the host; ARG001
            for two kernels of a layer.
        """
        found: dict[int, str] = {}
        parts = list_layer_operations(layers)
        for selector, function in self.functions.items():
            part = find_operations(parts, selector, "COMP001")[-1]
            op = layers[part.index]
            problem, hint = op.host_reason and "the host computes the layer", None
            if part.name != op.last_fused.instruction.name:
                problem = f"it is fused into the layer {op.last_fused.instruction.name}"
                hint = "Name that layer, whose kernel computes both, or add --no-fuse."
            if problem:
                raise fail(
                    "COMP001",
                    f"a kernel cannot compute {quote(selector)}: {problem}",
                    found=op.host_reason or part.name,
                    expected="a layer of the device",
                    hint=hint,
                )
            if part.index in found:
                raise fail(
                    "ARG001",
                    f"the layer {part.name} has two kernels",
                    found=quote(selector),
                    expected="one kernel for each layer",
                )
            found[part.index] = function
        return found

    def make_call(self, function: str, record: int, config: DeviceConfig) -> KernelCall:
        """Make the call of a function with the record at an address.

        Raises
        ------
        UserError
            ARG001 if the file has no such function, COMP002 if it does not fit the scratchpad.
        """
        symbols, program = self.program.symbols, self.program
        address = symbols.get(function, 0)
        if address % 4 or not any(start <= address < end for start, end in program.text):
            sizes = program.symbol_sizes
            code = [
                name
                for name, at in symbols.items()
                if sizes[name] and any(start <= at < end for start, end in program.text)
            ]
            raise fail(
                "ARG001",
                f"the kernel has no function {quote(function)}",
                place=Place(program.path),
                found=", ".join(map(quote, sorted(code)[:8])) or "no functions",
                expected=f"a function defined as NMP_KERNEL void {quote(function)}(...)",
                hint="Name another function as LAYER=FILE.elf:FUNCTION.",
            )
        top = symbols.get(_STACK, 0)
        if top % _STACK_ALIGNMENT or not 0 < top - SCRATCHPAD_BASE <= program.scratchpad_bytes:
            raise _not_linked(program, f"no stack in the scratchpad ({_STACK} = {top:#x})")
        if program.scratchpad_bytes > config.scratchpad_bytes:
            raise fail(
                "COMP002",
                "the stack and the variables of the kernel do not fit the scratchpad",
                place=Place(program.path),
                found=f"{program.scratchpad_bytes} bytes",
                expected=f"at most {config.scratchpad_bytes} bytes",
                hint="Use smaller variables, or a smaller --stack of `nmpsim c-flags`.",
            )
        return KernelCall(
            address, record, top, *(symbols.get(name, 0) for name in (_GLOBALS, _THREAD))
        )


def split_kernel(value: str) -> tuple[str, str]:
    """Return the path and the function name of ``FILE.elf`` or ``FILE.elf:FUNCTION``."""
    path, colon, function = value.rpartition(":")
    if not colon or Path(value).exists():
        return value, DEFAULT_FUNCTION
    return path, function


def read_kernels(kernels: Mapping[str, str]) -> KernelProgram | None:
    """Read the kernels of layers from an ELF file; return None if there are none.

    Parameters
    ----------
    kernels
        ``FILE.elf`` or ``FILE.elf:FUNCTION`` by layer; all functions are in one file.

    Raises
    ------
    UserError
        FILE001 or BUN for a file that is no executable, ARG001 for several files or one that was
        linked for other addresses.
    """
    functions: dict[str, str] = {}
    paths: dict[str, None] = {}
    for layer, value in kernels.items():
        path, functions[layer] = split_kernel(value)
        paths[path] = None
    if not paths:
        return None
    if len(paths) > 1:
        raise fail(
            "ARG001",
            "the kernels are in several files",
            found=", ".join(map(quote, paths)),
            expected="one ELF file with all functions",
            hint="Link all sources to one file, and name functions as LAYER=FILE.elf:FUNCTION.",
        )
    program = read_bundle(next(iter(paths)))
    if program.has_metadata:
        raise _not_linked(program, "a bundle")
    if program.image_base != KERNEL_BASE:
        raise _not_linked(program, f"code from {program.image_base:#x}")
    if program.image_base + program.image.size > RW_BASE or program.rw_base < RW_BASE:
        raise _not_linked(program, f"data from {program.rw_base:#x}")
    return KernelProgram(program, functions)


def _not_linked(program: Bundle, found: str) -> UserError:
    return fail(
        "ARG001",
        "the file was not linked as a kernel",
        place=Place(program.path),
        found=found,
        expected=f"code from {KERNEL_BASE:#x}, data from {RW_BASE:#x}, a stack in the scratchpad",
        hint=_HINT,
    )


def add_layer_record(
    op: Operation,
    numbers: tuple[int, int],
    plan: LayerPlan,
    memory: ProgramMemory,
    config: DeviceConfig,
) -> int:
    """Store the record of a layer and of its tensors; return the layer record's address.

    Parameters
    ----------
    op
        The operation of the layer.
    numbers
        Numbers of the layer and of the barrier that the kernel may use.
    plan
        The compiler's plan, whose first descriptor the record refers to.
    memory, config
        Memory of the program, and the device.
    """
    number, barrier = numbers
    name = f"{op.last_fused.instruction.name}.kernel"
    views = (op.output, *op.operands[1:])
    addresses = [memory.get_address(view) for view in views]
    records = b"".join(map(_encode_tensor, views, addresses))
    tensors = memory.add_constant(f"{name}.tensors", records)
    descriptor = 0
    if plan.computes.words.size:
        first = _encode_descriptor(plan, number, addresses[0])
        descriptor = memory.add_constant(f"{name}.descriptor", first)
    words = {
        "number": number,
        "barrier": barrier,
        "scratchpad_bytes": config.scratchpad_bytes,
        "tensors_count": len(views),
        "tensors": tensors,
        "descriptor": descriptor,
    }
    return memory.add_constant(name, _encode(_LAYER, words))


def _encode_tensor(view: BufferView, address: int) -> bytes:
    shape = (1,) * (_DIMENSIONS - len(view.shape)) + tuple(view.shape)
    merged = len(shape) - _DIMENSIONS + 1
    shape = (math.prod(shape[:merged]), *shape[merged:])
    type = view.type.dtype.name
    scale = view.scale if view.type.quant else 0.0
    words = {
        "data": address,
        "type": _TYPES.index(type if type in _TYPES else "other"),
        "scale": struct.unpack("<I", struct.pack("<f", scale))[0],
        "offset": view.offset,
    }
    sizes = zip(shape, compute_row_major_strides(shape), strict=True)
    for dimension, (size, stride) in enumerate(sizes):
        words[f"size_{dimension}"] = size
        words[f"stride_{dimension}"] = stride * view.element_bytes
    return _encode(_TENSOR, words)


def _encode_descriptor(plan: LayerPlan, layer: int, output: int) -> bytes:
    """Encode the first tile's descriptor with the addresses of its operands in DRAM."""
    record = DESCRIPTORS[str(BY_MNEMONIC[plan.computes.mnemonic].descriptor)]
    names = [word.name for word in record]
    words = dict(zip(names, plan.computes.words[0].tolist(), strict=True)) | {"layer": layer}
    loaded = dict(_list_boxes(plan.loads))
    for word in record.operands:
        address = words[word.name]
        words[word.name] = output if word.name == "output" else loaded.get(address, 0)
    return _encode(record, words)


def _list_boxes(loads: TileInstructions) -> Iterator[tuple[int, int]]:
    """Yield the scratchpad and DRAM addresses of the first tile's loads."""
    names = [word.name for word in DESCRIPTORS["load"]]
    boxes = loads.words[:, [names.index("spm"), names.index("dram")]]
    yield from map(tuple, boxes[: loads.ends[1]].tolist())


def _encode(record: Descriptor, words: Mapping[str, int]) -> bytes:
    values = [words[word.name] & 0xFFFF_FFFF for word in record]
    return np.array(values, "<u4").tobytes()
