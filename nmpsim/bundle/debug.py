"""The LIR module that a bundle was made from, carried along as debug information.

As DWARF does for code: sections that no loader touches, read only when somebody asks. The text is
what ``print_module`` makes; what it cannot hold is in the index: exact scales, and where each
constant's values lie. A constant that the device's image holds as it is lies there only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.elf import Buffer, align_up
from nmpsim.bundle.layout import (
    DEBUG_SECTIONS,
    LIR_CONSTANTS,
    LIR_INDEX,
    LIR_TEXT,
    TENSOR_ALIGNMENT,
)
from nmpsim.bundle.limits import TEXT_BYTES, Address, ZeroPoint
from nmpsim.bundle.schema import record_from_json, record_to_json
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir import Module, WeightVar, parse, print_module, verify
from nmpsim.lir.nodes import TensorType
from nmpsim.lir.scales import ExactScale as NamedScale
from nmpsim.lir.scales import float32, with_scales
from nmpsim.report.fields import Before

SCHEMA: Final = "nmpsim-lir-1"
"""Version of the index."""


@attrs.frozen
class ExactScale:
    """A quantized tensor's parameters; the text prints nine decimals of the scale."""

    name: str
    scale: float
    offset: ZeroPoint


@attrs.frozen
class ConstantPlace:
    """Where a constant's values lie, row-major and little endian, as its type says."""

    name: str
    space: Literal["image", "section"]
    """In the device's memory, or in the section of constants."""
    at: Address
    """Address in the memory, or offset in the section."""


@attrs.frozen
class ModuleIndex:
    """What the text does not hold."""

    scales: tuple[ExactScale, ...]
    constants: tuple[ConstantPlace, ...]
    floats: tuple[ConstantPlace, ...] = ()
    """Where float32 values from before quantization lie, of constants that have such."""

    @property
    def schema(self) -> Annotated[Literal["nmpsim-lir-1"], Before("scales")]:
        """Version of the index."""
        return SCHEMA


def debug_sections(module: Module, held: Mapping[str, int]) -> dict[str, list[Buffer]]:
    """Contents of the debug sections; ``held`` are addresses of constants in the image."""
    places: list[ConstantPlace] = []
    chunks: list[Buffer] = []
    end = 0

    def put(name: str, values: npt.NDArray[Any]) -> ConstantPlace:
        nonlocal end
        start = align_up(end, TENSOR_ALIGNMENT)
        values = _little_endian(values)
        chunks.extend((bytes(start - end), values.reshape(-1).view(np.uint8).data))
        end = start + values.nbytes
        return ConstantPlace(name, "section", start)

    for weight in _constants(module):
        if weight.name in held:
            places.append(ConstantPlace(weight.name, "image", held[weight.name]))
        else:
            places.append(put(weight.name, module.constants[weight.name]))
    names = [weight.name for weight in _constants(module) if weight.name in module.floats]
    floats = tuple(put(name, module.floats[name]) for name in names)
    index = ModuleIndex(tuple(_scales(module)), tuple(places), floats)
    return {
        LIR_TEXT: [print_module(module).encode()],
        LIR_INDEX: [record_to_json(index, SCHEMA)],
        LIR_CONSTANTS: chunks,
    }


def read_module(
    sections: Mapping[str, memoryview],
    image: npt.NDArray[np.uint8],
    image_base: int,
    place: Place,
) -> Module:
    """The module that the sections describe; its constants are views, read-only.

    ``image`` is the device's read-only memory, from address ``image_base`` on.

    Raises:
        UserError: BUN005 if the bundle carries no module, BUN002 if it cannot be used, BUN003 if
            it is another version's.
    """
    missing = [name for name in DEBUG_SECTIONS if name not in sections]
    if missing:
        raise fail(
            "BUN005",
            "the bundle carries no LIR module",
            place=place,
            found=f"no section {', '.join(missing)}",
            hint="it was assembled or made by another compiler; `nmpsim compile` adds the module",
        )
    index = record_from_json(bytes(sections[LIR_INDEX]), ModuleIndex, SCHEMA, place, "LIR index")
    module = _parsed(sections[LIR_TEXT], index, place)
    stored = np.frombuffer(sections[LIR_CONSTANTS], np.uint8)
    memories = {"image": (image, image_base), "section": (stored, 0)}
    places = {one.name: one for one in index.constants}
    of_floats = {one.name: one for one in index.floats}
    constants, floats = {}, {}

    def values(where: ConstantPlace | None, name: str, type: TensorType) -> npt.NDArray[Any]:
        data = _inside(*memories[where.space], where.at, type.nbytes) if where else None
        if data is None:
            raise _unusable(place, f"the values of %{name} are not in the bundle")
        return _array(data, type)

    for weight in _constants(module):
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


def _parsed(text: memoryview, index: ModuleIndex, place: Place) -> Module:
    """The checked module without its constants; all that may be wrong is one BUN002."""
    if problem := TEXT_BYTES.problem(len(text)):
        raise _unusable(place, problem)
    scales = {s.name: NamedScale(s.name, float32(s.scale), s.offset) for s in index.scales}
    try:
        module = parse(bytes(text).decode("utf-8"), f"{place.file}({LIR_TEXT})")
        module, _ = with_scales(module, scales)
        verify(module)
    except UnicodeDecodeError:
        raise _unusable(place, "its text is not UTF-8") from None
    except UserError as error:
        raise _unusable(place, error.diagnostics[0].message) from error
    return module


def _constants(module: Module) -> list[WeightVar]:
    return [weight for weight in module.weights if weight.constant]


def _scales(module: Module) -> Iterator[ExactScale]:
    types: dict[str, Any] = {weight.name: weight.type for weight in module.weights}
    types |= {i.name: i.attributes.get("Ty") for i in module.instructions}
    for name, type in types.items():
        if isinstance(type, TensorType) and type.quant is not None:
            yield ExactScale(name, type.quant.scale, type.quant.offset)


def _little_endian(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))


def _array(data: npt.NDArray[np.uint8], type: TensorType) -> npt.NDArray[Any]:
    """The bytes as a tensor; a copy only where they lie misaligned, as another tool may do."""
    values = np.require(data.view(type.dtype).reshape(type.shape), requirements=["A"])
    values.flags.writeable = False
    return values


def _unusable(place: Place, why: str) -> UserError:
    return fail(
        "BUN002",
        f"the bundle's LIR module cannot be used: {why}",
        place=place,
        hint="compile the network again",
    )
