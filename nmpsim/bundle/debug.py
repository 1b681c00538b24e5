"""The LIR module of a bundle, stored as debug information.

As with DWARF, loaders ignore these sections; they are read on demand. The text is that of
``format_module``. The index adds exact scales and the location of each constant's values. A
constant that is in the device's image is not stored again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.elf import Buffer, align_up, encode_array
from nmpsim.bundle.layout import (
    DEBUG_SECTIONS,
    LIR_CONSTANTS,
    LIR_INDEX,
    LIR_TEXT,
    TENSOR_ALIGNMENT,
)
from nmpsim.bundle.limits import PIECES, TEXT_BYTES, Address, ZeroPoint
from nmpsim.bundle.schema import format_record, parse_record
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.layouts import count_packed_bytes, unpack_weights
from nmpsim.lir.nodes import Module, TensorType, WeightVar
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module
from nmpsim.lir.scales import SidecarScale as NamedScale
from nmpsim.lir.scales import apply_scales, iterate_types, round_to_float32
from nmpsim.lir.verify import verify
from nmpsim.report.fields import WrittenBefore

SCHEMA: Final = "nmpsim-lir-2"
"""Schema of the index."""


@attrs.frozen
class DebugScale:
    """Exact scale and offset of a tensor; the LIR text has only nine decimals."""

    name: str
    scale: float
    offset: ZeroPoint


@attrs.frozen
class ConstantLocation:
    """Location of a constant's values in the image or in the debug section."""

    name: str
    space: Literal["image", "section"]
    """Whether they are in the device's memory or in the section of constants."""
    at: Address
    """Address in memory, or offset in the section."""


@attrs.frozen
class PackedConstantLocation:
    """Location of a constant that is stored in pieces, each packed for the MAC array.

    Weights of [O, kernel_h, kernel_w, I] are divided along O and along I. Pieces are stored in
    ascending order of O, then of I, and do not overlap.
    """

    name: str
    order: Literal["OI", "IO"]
    """Order of the constant's dimensions: [O, ..., I] or [I, O]."""
    outputs: Annotated[tuple[int, ...], PIECES]
    """First output channel of each piece, and O."""
    inputs: Annotated[tuple[int, ...], PIECES]
    """First input channel of each piece, and I."""
    at: Annotated[tuple[Address, ...], PIECES]
    """Address of each piece."""


@attrs.frozen
class ModuleIndex:
    """Index of a module's debug data: exact scales and the locations of constants."""

    scales: tuple[DebugScale, ...]
    constants: tuple[ConstantLocation, ...]
    packed: tuple[PackedConstantLocation, ...]
    floats: tuple[ConstantLocation, ...] = ()
    """Locations of the float32 values that constants had before quantization."""

    @property
    def schema(self) -> Annotated[Literal["nmpsim-lir-2"], WrittenBefore("scales")]:
        """Name and version of the index's schema."""
        return SCHEMA


def make_debug_sections(
    module: Module,
    held: Mapping[str, int],
    packed: Mapping[str, PackedConstantLocation] | None = None,
) -> dict[str, list[Buffer]]:
    """Return the contents of a module's debug sections by section name.

    ``held`` has the addresses of constants in the image, ``packed`` the packed constants.
    """
    packed = packed or {}
    places: list[ConstantLocation] = []
    chunks: list[Buffer] = []
    end = 0

    def place_constant(name: str, values: npt.NDArray[Any]) -> ConstantLocation:
        nonlocal end
        start = align_up(end, TENSOR_ALIGNMENT)
        chunks.extend((bytes(start - end), encode_array(values)))
        end = start + values.nbytes
        return ConstantLocation(name, "section", start)

    for weight in _constants(module):
        if weight.name in held:
            places.append(ConstantLocation(weight.name, "image", held[weight.name]))
        elif weight.name not in packed:
            places.append(place_constant(weight.name, module.constants[weight.name]))
    names = [weight.name for weight in _constants(module) if weight.name in module.floats]
    floats = tuple(place_constant(name, module.floats[name]) for name in names)
    in_pieces = packed.keys() - held.keys()
    pieces = tuple(packed[one.name] for one in _constants(module) if one.name in in_pieces)
    index = ModuleIndex(tuple(_scales(module)), tuple(places), pieces, floats)
    return {
        LIR_TEXT: [format_module(module).encode()],
        LIR_INDEX: [format_record(index, SCHEMA)],
        LIR_CONSTANTS: chunks,
    }


def read_module(
    sections: Mapping[str, memoryview],
    image: npt.NDArray[np.uint8],
    image_base: int,
    place: Place,
) -> Module:
    """Read the LIR module of a bundle from its debug sections.

    ``image`` is the device's read-only memory, from address ``image_base`` on.

    Raises
    ------
    UserError
        BUN005 if the bundle has no module, BUN002 if it is damaged, BUN003 if it has the schema of
        another version.
    """
    missing = [name for name in DEBUG_SECTIONS if name not in sections]
    if missing:
        raise fail(
            "BUN005",
            "the bundle contains no LIR module",
            place=place,
            expected=f"a bundle with the sections {', '.join(DEBUG_SECTIONS)}",
            found=f"a bundle without {', '.join(missing)}",
            hint="Compile the network with `nmpsim compile`, which adds the module.",
        )
    index = parse_record(bytes(sections[LIR_INDEX]), ModuleIndex, SCHEMA, place, "LIR index")
    module = _parsed(sections[LIR_TEXT], index, place)
    stored = np.frombuffer(sections[LIR_CONSTANTS], np.uint8)
    memories = {"image": (image, image_base), "section": (stored, 0)}
    places = {one.name: one for one in index.constants}
    of_floats = {one.name: one for one in index.floats}
    constants, floats = {}, {}

    def values(where: ConstantLocation | None, name: str, type: TensorType) -> npt.NDArray[Any]:
        data = _inside(*memories[where.space], where.at, type.nbytes) if where else None
        if data is None:
            raise _unusable(place, f"the bundle does not contain the values of %{name}")
        return _array(data, type)

    packed = {one.name: one for one in index.packed}
    left = image.size
    for weight in _constants(module):
        if weight.name in packed:
            pieces = _pieces(packed[weight.name], weight.type, image, image_base)
            left -= sum(piece.size for _, piece in pieces)
            if not pieces or left < 0:
                raise _unusable(place, f"the bundle does not contain the values of %{weight.name}")
            constants[weight.name] = _unpacked(packed[weight.name], weight.type, pieces)
        else:
            constants[weight.name] = values(places.get(weight.name), weight.name, weight.type)
        if weight.name in of_floats:
            type = TensorType("float", weight.type.shape)
            floats[weight.name] = values(of_floats[weight.name], weight.name, type)
    return attrs.evolve(module, constants=constants, floats=floats)


def _inside(
    memory: npt.NDArray[np.uint8], base: int, at: int, nbytes: int
) -> npt.NDArray[np.uint8] | None:
    start = at - base
    fits = start >= 0 and start + nbytes <= memory.size
    return memory[start : start + nbytes] if fits else None


_Piece: TypeAlias = tuple[tuple[slice, slice], npt.NDArray[np.uint8]]
"""Output channels, input channels and bytes of a piece."""


def _pieces(
    packed: PackedConstantLocation, type: TensorType, image: npt.NDArray[np.uint8], base: int
) -> list[_Piece]:
    """Return the pieces of a packed constant; empty if they do not cover the type exactly."""
    out, kernel_h, kernel_w, depth = _as_weights(packed, type)
    wide = type.dtype.itemsize
    is_whole = _divides(packed.outputs, out) and _divides(packed.inputs, depth)
    count = (len(packed.outputs) - 1) * (len(packed.inputs) - 1)
    if type.elem not in ("i8", "i16") or not is_whole or len(packed.at) != count:
        return []
    found, end = [], base
    cuts = product(pairwise(packed.outputs), pairwise(packed.inputs))
    for at, (outputs, inputs) in zip(packed.at, cuts, strict=True):
        row = kernel_w * (inputs[1] - inputs[0]) * wide
        nbytes = count_packed_bytes(outputs[1] - outputs[0], kernel_h, row)
        piece = _inside(image, base, at, nbytes) if at >= end and at % wide == 0 else None
        if piece is None:
            return []
        end = at + nbytes
        found.append(((slice(*outputs), slice(*inputs)), piece))
    return found


def _divides(bounds: tuple[int, ...], size: int) -> bool:
    ends = bounds[:1] + bounds[-1:]
    return ends == (0, size) and all(begin < end for begin, end in pairwise(bounds))


def _unpacked(
    packed: PackedConstantLocation, type: TensorType, pieces: list[_Piece]
) -> npt.NDArray[Any]:
    values, shape = np.empty(type.shape, type.dtype), _as_weights(packed, type)
    weights = values.T[:, None, None] if packed.order == "IO" else values.reshape(shape)
    for (out, depth), piece in pieces:
        unpack_weights(piece, weights[out, :, :, depth])
    values.flags.writeable = False
    return values


def _as_weights(packed: PackedConstantLocation, type: TensorType) -> tuple[int, int, int, int]:
    """Return the shape as [O, kernel_h, kernel_w, I]; zeros if the constant cannot be weights."""
    if len(type.shape) == 4 and packed.order == "OI":
        out, kernel_h, kernel_w, depth = type.shape
        return out, kernel_h, kernel_w, depth
    if len(type.shape) != 2:
        return 0, 0, 0, 0
    out, depth = reversed(type.shape) if packed.order == "IO" else type.shape
    return out, 1, 1, depth


def _parsed(text: memoryview, index: ModuleIndex, place: Place) -> Module:
    """Parse and verify the module without constants; raise UserError (BUN002) on any problem."""
    if problem := TEXT_BYTES.find_problem(len(text)):
        raise _unusable(place, problem)
    scales = {s.name: NamedScale(s.name, round_to_float32(s.scale), s.offset) for s in index.scales}
    try:
        module = parse(bytes(text).decode("utf-8"), f"{place.file}({LIR_TEXT})")
        module, _ = apply_scales(module, scales)
        verify(module)
    except UnicodeDecodeError:
        raise _unusable(place, "its text is not UTF-8") from None
    except UserError as error:
        raise _unusable(place, error.diagnostics[0].message) from error
    return module


def _constants(module: Module) -> list[WeightVar]:
    return [weight for weight in module.weights if weight.constant]


def _scales(module: Module) -> Iterator[DebugScale]:
    for name, type, _, _ in iterate_types(module):
        if type.quant is not None:
            yield DebugScale(name, type.quant.scale, type.quant.offset)


def _array(data: npt.NDArray[np.uint8], type: TensorType) -> npt.NDArray[Any]:
    """Return bytes as a tensor; copied only if they are misaligned."""
    values = np.require(data.view(type.dtype).reshape(type.shape), requirements=["A"])
    values.flags.writeable = False
    return values


def _unusable(place: Place, why: str) -> UserError:
    return fail(
        "BUN002",
        f"the bundle's LIR module cannot be used: {why}",
        place=place,
        hint="Compile the network again.",
    )
