"""Values of the variables of a program in C, in the calls that are active on a core."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any

import attrs

from nmpsim.debugger.backtrace import CallFrame
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import MAX_BYTES, describe_dram_address
from nmpsim.debuginfo.c_types import (
    MAX_DEPTH,
    CType,
    compute_size,
    format_type_name,
    resolve_alias,
)
from nmpsim.debuginfo.source_map import Operation, SourceVariable
from nmpsim.diagnostics import UserError, did_you_mean, fail
from nmpsim.escape import escape_line
from nmpsim.isa.table import DRAM_BASE, REGISTERS
from nmpsim.memory.address_map import read_bytes

MAX_ELEMENTS = 256
"""Maximum number of elements of an array that are shown."""
MAX_VALUES = 4096
"""Maximum number of values within one value."""
MAX_TEXT = 80
"""Maximum number of characters that are shown of a string."""
MAX_OPERATIONS = 1000
"""Maximum number of operations of a location that are evaluated."""
_MASK = 0xFFFF_FFFF
_THREAD_POINTER = 4
_STEP = re.compile(r"\s*(?:\[\s*(?P<index>\w+)\s*\]|(?P<operator>\.|->)\s*(?P<member>\w+))\s*")
_EXPRESSION = re.compile(r"\s*(?P<stars>\**)\s*(?P<name>[A-Za-z_]\w*)\s*(?P<steps>[\[.-].*)?")
_FLOATS = {4: "<f", 8: "<d"}


class UnavailableError(Exception):
    """Exception raised if a value is not available, with the reason."""


@attrs.frozen
class VariableValue:
    """Value of a variable or of a part of one."""

    name: str
    """SourceVariable or expression."""
    type: str
    value: Any
    """Number, list, object of the members, or None if the value is unavailable."""
    text: str
    """Value as text, or why it is unavailable."""
    address: int | None
    """Address in memory; None in a register or for an unavailable value."""
    is_parameter: bool
    is_available: bool = True


@attrs.frozen
class TypedPlace:
    """Place of a value with a type: an address, or bytes that are not in memory."""

    type: int
    address: int | None
    data: bytes = b""
    bits: tuple[int, int] | None = None
    """First bit and number of bits of a bit field."""


def find_variables(debugger: Debugger, frame: CallFrame, function: str) -> Sequence[SourceVariable]:
    """Return the variables that a call can name; inner variables hide outer ones."""
    found: dict[str, SourceVariable] = {}
    for one in debugger.source_map.variables:
        is_here = one.start <= frame.place < one.end and one.function in ("", function)
        if is_here and (one.name not in found or found[one.name].depth <= one.depth):
            found[one.name] = one
    return tuple(found.values())


def evaluate_variable(
    debugger: Debugger, frame: CallFrame, text: str, variables: Sequence[SourceVariable]
) -> VariableValue:
    """Evaluate a variable with members, elements and ``*``, such as ``*nodes[2].next``.

    Raises UserError (DEBUG001, DEBUG002) for invalid text, an unknown name and a wrong type.
    """
    match = _EXPRESSION.fullmatch(text)
    steps = [*_STEP.finditer(match["steps"] or "")] if match else []
    if match is None or "".join(one[0] for one in steps) != (match["steps"] or ""):
        raise fail(
            "DEBUG001",
            "the expression is invalid",
            found=text[:200],
            expected="a variable, optionally with [N], .MEMBER or ->MEMBER, and with * before it",
        )
    known = {one.name: one for one in variables}
    variable = known.get(match["name"])
    if variable is None:
        hint = did_you_mean(match["name"], known) or "List variables with `variables`."
        raise fail("DEBUG002", "unknown variable", found=match["name"], hint=hint)
    reader = _ValueReader(debugger, frame.core)
    is_parameter = variable.is_parameter and text == variable.name
    place = TypedPlace(variable.type, None)
    try:
        place = _locate(debugger, frame, variable)
        for step in steps:
            place = reader.follow(place, step)
        for _ in match["stars"]:
            place = reader.dereference(place)
        value, shown = reader.read(place)
    except UnavailableError as error:
        name = reader.name_type(place)
        return VariableValue(text, name, None, str(error), None, is_parameter, False)
    return VariableValue(text, reader.name_type(place), value, shown, place.address, is_parameter)


# --- places ---------------------------------------------------------------------------------------


def _locate(debugger: Debugger, frame: CallFrame, variable: SourceVariable) -> TypedPlace:
    """Return the place of a variable in a call; raise UnavailableError if it has none."""
    if not variable.locations:
        # GCC gives thread-local variables no location.
        kind = "optimized out" if variable.function else "optimized out or thread-local"
        raise UnavailableError(kind)
    here = [one for one in variable.locations if one.start <= frame.place < one.end]
    operations = here[0].operations if here else ()
    if not operations:
        raise UnavailableError("optimized out at this address")
    if operations[0] == ("DW_OP_addr", (0,)):
        raise UnavailableError("the linker removed it, because the program does not use it")
    source_map = debugger.source_map
    function = source_map.find_function(frame.place)
    if (
        variable.frame_offset is not None
        and function is not None
        and frame.place < min(source_map.list_statements(function.start, function.end), default=0)
    ):
        raise UnavailableError("not stored yet; the function is at its start, use `step line`")
    return _Evaluation(debugger, frame, variable).run(operations)


class _Evaluation:
    """Evaluation of a DWARF expression on a stack."""

    def __init__(self, debugger: Debugger, frame: CallFrame, variable: SourceVariable) -> None:
        self._debugger, self._frame, self._variable = debugger, frame, variable

    def run(self, operations: Sequence[Operation]) -> TypedPlace:
        """Return the place that an expression describes."""
        kind, value, pieces = "memory", 0, b""
        stack: list[int] = []
        for name, operands in islice(operations, MAX_OPERATIONS):
            word = name.removeprefix("DW_OP_")
            if word in ("piece", "bit_piece"):
                if word == "bit_piece" or not stack:
                    raise UnavailableError("a part of it is optimized out")
                pieces += self._read(kind, stack.pop(), operands[0])
                kind = "memory"
            elif word == "stack_value":
                kind = "value"
            elif word == "implicit_value":
                return TypedPlace(self._variable.type, None, bytes(operands[0]))
            elif re.fullmatch(r"reg\d+|regx", word):
                kind = "value"
                stack.append(self._register(int(word[3:] if word != "regx" else operands[0])))
            else:
                stack.append(self._compute(word, operands, stack))
        if pieces:
            return TypedPlace(self._variable.type, None, pieces)
        if not stack:
            raise UnavailableError("its location is damaged")
        value = stack.pop()
        if kind == "memory":
            return TypedPlace(self._variable.type, value)
        return TypedPlace(self._variable.type, None, (value & (1 << 64) - 1).to_bytes(8, "little"))

    def _read(self, kind: str, value: int, nbytes: int) -> bytes:
        if kind == "value":
            return (value & (1 << 64) - 1).to_bytes(8, "little")[:nbytes]
        return _read_memory(self._debugger, self._frame.core, value, nbytes)

    def _register(self, number: int) -> int:
        value = self._frame.registers.get(number)
        if value is None:
            name = REGISTERS[number] if number < len(REGISTERS) else f"number {number}"
            raise UnavailableError(f"in register {name}, which a called function may have changed")
        return value

    def _compute(self, word: str, operands: Sequence[Any], stack: list[int]) -> int:
        """Return the result of an operation, whose operands are removed from the stack."""
        if word in ("addr", "constu", "consts", "const1u", "const1s", "const2u", "const2s",
                    "const4u", "const4s", "const8u", "const8s"):  # fmt: skip
            return int(operands[0])
        if word.startswith("lit"):
            return int(word[3:])
        if word == "call_frame_cfa":
            if self._frame.base is None:
                raise UnavailableError("the function has no unwind rules")
            return self._frame.base
        if word == "fbreg":
            base = _Evaluation(self._debugger, self._frame, self._variable)
            return base._find_frame_base() + int(operands[0]) & _MASK
        if word.startswith("breg"):
            number, offset = (int(word[4:]), operands[0]) if word != "bregx" else operands
            return self._register(number) + int(offset) & _MASK
        try:
            first = stack.pop()
            if word == "dup":
                stack.append(first)
                return first
            if word == "plus_uconst":
                return first + int(operands[0]) & _MASK
            if word == "deref":
                data = _read_memory(self._debugger, self._frame.core, first, 4)
                return int.from_bytes(data, "little")
            if word in ("form_tls_address", "GNU_push_tls_address"):
                return first + self._register(_THREAD_POINTER) & _MASK
            if word in ("neg", "not"):
                return (-first if word == "neg" else ~first) & _MASK
            return int(_BINARY[word](stack.pop(), first)) & _MASK
        except (IndexError, KeyError, ZeroDivisionError):
            if "entry_value" in word:
                reason = "only its value at the entry of the function is known to the compiler"
            else:
                reason = f"its location has the operation {escape_line(word)}"
            raise UnavailableError(reason) from None

    def _find_frame_base(self) -> int:
        """Return the frame base of the variable's function."""
        match self._variable.frame_base:
            case [(name, operands)] if name.startswith("DW_OP_reg"):
                word = name.removeprefix("DW_OP_reg")
                return self._register(int(operands[0] if word == "x" else word))
            case [(name, operands)] if name != "DW_OP_fbreg":
                return self._compute(name.removeprefix("DW_OP_"), operands, [])
        raise UnavailableError("the function has no frame base")


_BINARY: dict[str, Any] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b if b < 32 else 0,
    "shr": lambda a, b: (a & _MASK) >> b,
    "shra": lambda a, b: ((a & _MASK ^ 1 << 31) - (1 << 31)) >> b,
}


class _ValueReader:
    """Reader of typed values in the memory that a core sees."""

    def __init__(self, debugger: Debugger, core: int) -> None:
        self._debugger, self._core = debugger, core
        self._types = debugger.source_map.types
        self._values_left = MAX_VALUES

    def name_type(self, place: TypedPlace) -> str:
        """Return the type of a place as text."""
        return escape_line(format_type_name(self._types, place.type))

    def dereference(self, place: TypedPlace) -> TypedPlace:
        """Return the place that a pointer or an array points to."""
        found = resolve_alias(self._types, place.type)
        if found is not None and found.kind == "array" and place.address is not None:
            return TypedPlace(found.target, place.address)
        if found is None or found.kind != "pointer":
            raise self._make_error(place, "a pointer")
        return TypedPlace(found.target, int.from_bytes(self._load(place, 4), "little"))

    def follow(self, place: TypedPlace, step: re.Match[str]) -> TypedPlace:
        """Return the place of a member or an element."""
        if step["member"]:
            place = self.dereference(place) if step["operator"] == "->" else place
            for name, bit, key, nbits in self._list_members(place.type):
                if name == step["member"]:
                    return _select(place, bit, key, nbits)
            raise self._make_error(place, f"a struct with the member {step['member']}")
        found = resolve_alias(self._types, place.type)
        if found is None or found.kind not in ("array", "pointer"):
            raise self._make_error(place, "an array or a pointer")
        if not step["index"].isdecimal() or len(step["index"]) > 10:
            expected = "a decimal number"
            raise fail("DEBUG001", "invalid index", found=step["index"], expected=expected)
        index = int(step["index"])
        if found.kind == "pointer":
            place = self.dereference(place)
        elif found.count is not None and index >= found.count:
            expected = f"0 to {found.count - 1}"
            raise fail(
                "DEBUG002", "the index is outside of the array", found=str(index), expected=expected
            )
        return _select(place, 8 * index * self._compute_size(found.target), found.target)

    def read(self, place: TypedPlace, depth: int = 0) -> tuple[Any, str]:
        """Return a value as JSON data and as text."""
        found = resolve_alias(self._types, place.type)
        self._values_left -= 1
        if found is None or depth > MAX_DEPTH:
            raise UnavailableError("its type is unknown")
        if self._values_left < 0:
            raise UnavailableError(f"it has more than {MAX_VALUES} values; print a part of it")
        if found.kind in ("struct", "union"):
            members = {
                name: self.read(_select(place, bit, key, nbits), depth + 1)
                for name, bit, key, nbits in self._list_members(place.type)
            }
            shown = ", ".join(
                f"{escape_line(name)} = {text}" for name, (_, text) in members.items()
            )
            return {name: value for name, (value, _) in members.items()}, f"{{{shown}}}"
        if found.kind == "array":
            return self._read_array(place, found, depth)
        if found.kind == "function":
            text = self._debugger.source_map.describe(place.address or 0)
            return place.address, escape_line(text)
        first, nbits = place.bits or (0, 8 * self._compute_size(place.type))
        data = self._load(place, (first + nbits + 7) // 8)
        number = int.from_bytes(data, "little") >> first & (1 << nbits) - 1
        return self._format_number(found, number, nbits, data)

    def _read_array(self, place: TypedPlace, found: CType, depth: int) -> tuple[Any, str]:
        if found.count is None:
            raise UnavailableError("the number of its elements is not a constant")
        nbytes = self._compute_size(found.target)
        count = min(found.count, MAX_ELEMENTS)
        parts = [
            self.read(_select(place, 8 * index * nbytes, found.target), depth + 1)
            for index in range(count)
        ]
        values = [value for value, _ in parts]
        element = resolve_alias(self._types, found.target)
        if nbytes == 1 and element is not None and element.name in ("char", "unsigned char"):
            head = bytes(value & 0xFF for value in values).rstrip(b"\0")
            if head.isascii() and head.decode("ascii").isprintable() and head:
                return values, f'"{head.decode()}"' + "..." * (count < found.count)
        more = f", ... {found.count - count} more" if count < found.count else ""
        return values, "{" + ", ".join(text for _, text in parts) + more + "}"

    def _format_number(self, found: CType, number: int, nbits: int, data: bytes) -> tuple[Any, str]:
        """Return a number of a scalar type as JSON data and as text."""
        if found.kind == "float" and len(data) in _FLOATS:
            (real,) = struct.unpack(_FLOATS[len(data)], data)
            return real, f"{real:.9g}" if len(data) == 4 else repr(real)
        if found.kind == "pointer":
            return number, f"{number:#x}{self._describe_target(found, number)}"
        if found.kind == "boolean":
            return bool(number), str(bool(number)).lower()
        is_signed = found.kind == "signed" or (found.kind == "enum" and number not in found.values)
        if is_signed and nbits and number >> nbits - 1:
            number -= 1 << nbits
        if found.kind == "enum":
            name = escape_line(found.values.get(number, ""))
            return number, f"{name} ({number})" if name else str(number)
        is_text = len(data) == 1 and "char" in found.name and 32 <= number < 127
        return number, f"{number} '{chr(number)}'" if is_text else str(number)

    def _describe_target(self, found: CType, address: int) -> str:
        """Describe what a pointer points to: text, a function, a variable, or nothing."""
        target = resolve_alias(self._types, found.target)
        if target is not None and target.name == "char":
            text = self._read_text(address)
            if text and text.isascii() and text.decode("ascii").isprintable():
                return f' "{text.decode()}"' + "..." * (len(text) == MAX_TEXT)
        if target is not None and target.kind == "function":
            return f" <{escape_line(self._debugger.source_map.describe(address))}>"
        name = describe_dram_address(self._debugger, address, ()) if address >= DRAM_BASE else ""
        return f" <{escape_line(name)}>" if name and not name.startswith("0x") else ""

    def _read_text(self, address: int) -> bytes:
        """Return the bytes of a C string up to its zero byte, at most ``MAX_TEXT``."""
        text = b""
        for index in range(MAX_TEXT):
            byte = read_bytes(self._debugger.machine, self._core, address + index, 1)
            if byte in (None, b"\0"):
                break
            text += byte or b""
        return text

    def _list_members(
        self, key: int, first_bit: int = 0, depth: int = 0
    ) -> list[tuple[str, int, int, int | None]]:
        """Return name, first bit, type and bits of all members, also of anonymous members."""
        found = resolve_alias(self._types, key)
        members: list[tuple[str, int, int, int | None]] = []
        for one in () if found is None or depth > MAX_DEPTH else found.members:
            bit = first_bit + one.first_bit
            if one.name:
                members.append((one.name, bit, one.type, one.nbits))
            else:
                members += self._list_members(one.type, bit, depth + 1)
        return members

    def _compute_size(self, key: int) -> int:
        nbytes = compute_size(self._types, key)
        if nbytes is None:
            raise UnavailableError("the size of its type is unknown")
        return nbytes

    def _load(self, place: TypedPlace, nbytes: int) -> bytes:
        if place.address is not None:
            return _read_memory(self._debugger, self._core, place.address, nbytes)
        if len(place.data) < nbytes:
            raise UnavailableError("a part of it is optimized out")
        return place.data[:nbytes]

    def _make_error(self, place: TypedPlace, expected: str) -> UserError:
        found = f"a value of type {self.name_type(place)}"
        return fail("DEBUG002", "the type is wrong", found=found, expected=expected)


def _select(place: TypedPlace, bit: int, key: int, nbits: int | None = None) -> TypedPlace:
    """Return the place of a part that begins at a bit of a place."""
    first, bits = bit // 8, None if nbits is None else (bit % 8, nbits)
    if place.address is not None:
        return TypedPlace(key, place.address + first & _MASK, b"", bits)
    return TypedPlace(key, None, place.data[first:], bits)


def _read_memory(debugger: Debugger, core: int, address: int, nbytes: int) -> bytes:
    """Return bytes as a core sees them; raise UnavailableError outside of memory."""
    data = read_bytes(debugger.machine, core, address, nbytes) if nbytes <= MAX_BYTES else None
    if data is None:
        raise UnavailableError(f"there is no memory at {address:#x}")
    return data
