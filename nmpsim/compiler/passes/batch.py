"""Conversion of a module for one image to a module for a batch of images."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nmpsim.compiler.resolve import get_instruction_place
from nmpsim.diagnostics import Place, fail
from nmpsim.lir.nodes import Instruction, Module, SourcePosition, TensorType
from nmpsim.lir.opcodes import OPCODES, OpcodeKind
from nmpsim.lir.verify import verify

_WITH_CONSTANTS = (OpcodeKind.CONVOLUTION, OpcodeKind.FULLY_CONNECTED, OpcodeKind.LOOK_UP)
"""Kinds whose operands after the source are constants."""
_IMAGE_BY_IMAGE = (
    *_WITH_CONSTANTS,
    OpcodeKind.MAX_POOL,
    OpcodeKind.AVERAGE_POOL,
    OpcodeKind.PAIR,
    OpcodeKind.CLIP,
    OpcodeKind.RESCALE,
    OpcodeKind.FILL,
    OpcodeKind.MOVE,
    OpcodeKind.CONVERSION,
    OpcodeKind.FUNCTION,
    OpcodeKind.NO_WORK,
)
"""Kinds that compute each item of dimension 0 separately."""


def make_batch_module(module: Module, images: int) -> Module:
    """Make a module that computes ``images`` images, stacked along dimension 0 of activations.

    Names, constants and the numbers of instructions stay the same.

    Raises
    ------
    UserError
        COMP001 if dimension 0 of an activation is not 1, if an operation does not compute each
        image separately, or if the module has state; LIR codes if a tensor becomes too large.
    """
    if module.states:
        raise fail(
            "COMP001",
            "a network with state cannot compute a batch",
            found=f"the state tensors {', '.join(list(module.states)[:3])}",
            expected="a network without state",
            hint="Leave out --batch-cores and --images-per-core.",
        )
    types = {weight.name: weight.type for weight in module.weights if not weight.constant}
    weights = tuple(
        weight
        if weight.constant
        else attrs.evolve(
            weight, type=_add_images(weight.name, weight.type, images, weight.span, module.file)
        )
        for weight in module.weights
    )
    instructions = tuple(_convert(one, types, images, module.file) for one in module.instructions)
    batch = attrs.evolve(module, weights=weights, instructions=instructions)
    verify(batch)
    return batch


def _convert(
    instruction: Instruction, types: dict[str, TensorType], images: int, file: str | None
) -> Instruction:
    """Convert an instruction; add the type for one image of a new tensor to ``types``."""
    reason = _find_problem(instruction, types)
    if reason:
        raise _make_error(
            f"%{instruction.name} does not compute each image separately",
            reason,
            "convolutions, pools, elementwise operations and other operations on single images",
            get_instruction_place(instruction, file),
        )
    own = instruction.attributes.get("Ty")
    sources = [operand.name for operand in instruction.operands]
    if not isinstance(own, TensorType) or (sources and sources[0] not in types):
        return instruction
    types[instruction.name] = own
    new = _add_images(instruction.name, own, images, instruction.span, file)
    return attrs.evolve(instruction, attributes={**instruction.attributes, "Ty": new})


def _find_problem(instruction: Instruction, types: Mapping[str, TensorType]) -> str:
    """Return why an operation cannot be repeated for each image, or '' if it can."""
    opcode, attributes = OPCODES[instruction.opcode], instruction.attributes
    if opcode.kind not in _IMAGE_BY_IMAGE and instruction.opcode != "softmax":
        return f"{instruction.opcode}"
    if instruction.opcode == "tensorview":
        source, view = types.get(instruction.operands[0].name), attributes["Ty"]
        assert isinstance(view, TensorType)
        is_part = source is not None and source.nbytes != view.nbytes
        return f"a view of a part of %{instruction.operands[0].name}" if is_part else ""
    order = attributes.get("Shuffle")
    if isinstance(order, tuple) and order[0] != 0:
        return "a transpose of dimension 0"
    if opcode.kind is OpcodeKind.NO_WORK:
        return ""
    for index, operand in enumerate(instruction.operands):
        is_constant = index > 1 and opcode.kind in _WITH_CONSTANTS
        if is_constant == (operand.name in types):
            return f"%{operand.name} is {'not ' if is_constant else ''}a constant"
    return ""


def _add_images(
    name: str, type: TensorType, images: int, span: SourcePosition, file: str | None
) -> TensorType:
    if type.shape[:1] != (1,):
        found = " x ".join(map(str, type.shape)) or "a scalar"
        raise _make_error(
            f"%{name} cannot be repeated for each image", found, "1 x ...", span.place(file)
        )
    return attrs.evolve(type, shape=(images, *type.shape[1:]))


def _make_error(message: str, found: str, expected: str, place: Place) -> Exception:
    hint = "Compile the network without --batch-cores."
    return fail("COMP001", message, place=place, found=found, expected=expected, hint=hint)
