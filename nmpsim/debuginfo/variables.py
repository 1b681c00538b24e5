"""Decode variables with their locations and types from DWARF sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.dwarf.locationlists import (
    BaseAddressEntry,
    LocationEntry,
    LocationExpr,
    LocationParser,
)

from nmpsim.debuginfo.c_types import CType, Member, TypeKind, compute_size
from nmpsim.debuginfo.source_map import Location, Operation, SourceVariable

_SCOPES = ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")
_VARIABLES = ("DW_TAG_variable", "DW_TAG_formal_parameter")
_END = 1 << 32
"""End of the address space."""
_MAX_DIMENSIONS = 64
_KINDS: Mapping[str, TypeKind] = {
    "DW_TAG_pointer_type": "pointer",
    "DW_TAG_reference_type": "pointer",
    "DW_TAG_rvalue_reference_type": "pointer",
    "DW_TAG_structure_type": "struct",
    "DW_TAG_class_type": "struct",
    "DW_TAG_union_type": "union",
    "DW_TAG_array_type": "array",
    "DW_TAG_enumeration_type": "enum",
    "DW_TAG_subroutine_type": "function",
    "DW_TAG_typedef": "alias",
    "DW_TAG_const_type": "alias",
    "DW_TAG_volatile_type": "alias",
    "DW_TAG_restrict_type": "alias",
    "DW_TAG_atomic_type": "alias",
}
_ENCODINGS: Mapping[int, TypeKind] = {
    2: "boolean", 4: "float", 5: "signed", 6: "signed", 7: "unsigned", 8: "unsigned",
}  # fmt: skip
"""Value of ``DW_AT_encoding`` -> kind of a base type."""

RangeLister = Callable[[Any], Iterator[tuple[int, int]]]
"""Return the address ranges of an entry."""
OriginFinder = Callable[[Any], Any]
"""Return the entry with the name and type of an entry that refers to it."""


class VariableDecoder:
    """Decoder of the variables of all compilation units and of their types.

    Parameters
    ----------
    location_lists
        The location lists of the file as pyelftools reads them; None if there are none.
    find_origin
        Finds the entry with the name and type of a variable.
    """

    def __init__(self, location_lists: Any, find_origin: OriginFinder) -> None:
        self.types: dict[int, CType] = {}
        """Offset of an entry -> its type."""
        self._lists = LocationParser(location_lists)
        self._find_origin = find_origin

    def decode_unit(self, unit: Any, list_ranges: RangeLister) -> Iterator[SourceVariable]:
        """Yield the variables of a unit, one for each address range of the variable's scope."""
        parser = DWARFExprParser(unit.structs)
        scopes: list[tuple[list[tuple[int, int]], tuple[Operation, ...], str]] = [
            ([(0, _END)], (), "")
        ]
        """Ranges, frame base and function of each scope on the path to the current entry."""
        for entry in unit.iter_DIEs():
            if entry.is_null():
                scopes.pop()
                continue
            ranges, base, function = scopes[-1]
            if entry.tag in _SCOPES:
                own = [one for one in list_ranges(entry) if one[0] < one[1]]
                if entry.tag == "DW_TAG_subprogram":
                    ranges, base = own, self._decode_frame_base(entry, parser)
                ranges = own or ranges
                if entry.tag != "DW_TAG_lexical_block":
                    function = _get_text(self._find_origin(entry)) or "?"
            elif entry.tag in _VARIABLES and ranges:
                yield from self._decode_variable(entry, parser, len(scopes), scopes[-1])
            if entry.has_children:
                scopes.append((ranges, base, function))

    def _decode_variable(
        self,
        entry: Any,
        parser: DWARFExprParser,
        depth: int,
        scope: tuple[list[tuple[int, int]], tuple[Operation, ...], str],
    ) -> Iterator[SourceVariable]:
        origin = self._find_origin(entry)
        name, kind = _get_text(origin), origin.attributes.get("DW_AT_type")
        is_declaration = "DW_AT_declaration" in entry.attributes
        if not name or kind is None or is_declaration:
            return
        key = self._decode_type(origin)
        places = tuple(self._decode_location(entry, origin, parser))
        ranges, base, function = scope
        nbytes = compute_size(self.types, key) or 0
        is_parameter = entry.tag == "DW_TAG_formal_parameter"
        for start, end in ranges:
            yield SourceVariable(
                start, end, name, nbytes, places, base, key, function, depth, is_parameter
            )

    def _decode_frame_base(self, entry: Any, parser: DWARFExprParser) -> tuple[Operation, ...]:
        attribute = entry.attributes.get("DW_AT_frame_base")
        if attribute is None or not attribute.form.startswith(("DW_FORM_exprloc", "DW_FORM_block")):
            return ()
        return _decode_expression(attribute.value, parser)

    def _decode_location(
        self, entry: Any, origin: Any, parser: DWARFExprParser
    ) -> Iterator[Location]:
        """Yield the places of a variable with the addresses at which each one is valid."""
        both = {**origin.attributes, **entry.attributes}
        if isinstance(value := getattr(both.get("DW_AT_const_value"), "value", None), int):
            yield Location(0, _END, (("DW_OP_consts", (value,)), ("DW_OP_stack_value", ())))
        attribute, version = both.get("DW_AT_location"), entry.cu["version"]
        if attribute is None or not self._lists.attribute_has_location(attribute, version):
            return
        found = self._lists.parse_from_attribute(attribute, version, entry)
        if isinstance(found, LocationExpr):
            yield Location(0, _END, _decode_expression(found.loc_expr, parser))
            return
        top = entry.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = 0 if top is None else top.value
        for one in found:
            if isinstance(one, BaseAddressEntry):
                base = one.base_address
            elif isinstance(one, LocationEntry):
                added = 0 if one.is_absolute else base
                places = _decode_expression(one.loc_expr, parser)
                yield Location(added + one.begin_offset, added + one.end_offset, places)

    # --- types ------------------------------------------------------------------------------------

    def _decode_type(self, entry: Any) -> int:
        """Decode the type of an entry and all types that it refers to; return its key."""
        if "DW_AT_type" not in entry.attributes:
            return -1
        first = entry.get_DIE_from_attribute("DW_AT_type")
        waiting = [first]
        while waiting:
            one = waiting.pop()
            if one.offset not in self.types:
                self._add_type(one)
                children = [child for child in one.iter_children() if child.tag == "DW_TAG_member"]
                waiting += [
                    other.get_DIE_from_attribute("DW_AT_type")
                    for other in (one, *children)
                    if "DW_AT_type" in other.attributes
                ]
        return int(first.offset)

    def _add_type(self, entry: Any) -> None:
        """Add the type of an entry; an array of several dimensions is an array of arrays."""
        found = _make_type(entry)
        counts = [
            _count_elements(one)
            for one in entry.iter_children()
            if one.tag == "DW_TAG_subrange_type"
        ]
        inner = found.target
        for number, count in reversed([*enumerate(counts)][1:]):
            key = -2 - (entry.offset * _MAX_DIMENSIONS + number % _MAX_DIMENSIONS)
            self.types[key] = attrs.evolve(found, target=inner, count=count, nbytes=None)
            inner = key
        self.types[entry.offset] = attrs.evolve(
            found, target=inner, count=counts[0] if counts else None
        )


def _make_type(entry: Any) -> CType:
    """Return the type of an entry; other types are referred to by the offsets of their entries."""
    kind = _KINDS.get(entry.tag, "unknown")
    encoding = _get_number(entry, "DW_AT_encoding")
    if entry.tag == "DW_TAG_base_type" and encoding is not None:
        kind = _ENCODINGS.get(encoding, "unknown")
    name, children = _get_text(entry), list(entry.iter_children())
    if not name and kind == "alias":
        name = entry.tag.removeprefix("DW_TAG_").removesuffix("_type") + " "
    values = {
        number: _get_text(one)
        for one in children
        if one.tag == "DW_TAG_enumerator"
        and (number := _get_number(one, "DW_AT_const_value")) is not None
    }
    members = [_make_member(one) for one in children if one.tag == "DW_TAG_member"]
    nbytes = _get_number(entry, "DW_AT_byte_size")
    return CType(kind, name, nbytes, _get_target(entry), None, tuple(members), values)


def _make_member(entry: Any) -> Member:
    offset, nbits = (
        _get_number(entry, name) for name in ("DW_AT_data_member_location", "DW_AT_bit_size")
    )
    bit, first = _get_number(entry, "DW_AT_data_bit_offset"), 8 * (offset or 0)
    high = _get_number(entry, "DW_AT_bit_offset")
    if high is not None and nbits is not None:  # before DWARF 4: counted from the high end
        first += 8 * (_get_number(entry, "DW_AT_byte_size") or 4) - high - nbits
    return Member(_get_text(entry), first if bit is None else bit, _get_target(entry), nbits)


def _count_elements(entry: Any) -> int | None:
    """Return the number of elements of a dimension, or None if it is not a constant."""
    bound = _get_number(entry, "DW_AT_upper_bound")
    return _get_number(entry, "DW_AT_count") if bound is None else bound + 1


def _get_target(entry: Any) -> int:
    has_type = "DW_AT_type" in entry.attributes
    return int(entry.get_DIE_from_attribute("DW_AT_type").offset) if has_type else -1


def _get_number(entry: Any, name: str) -> int | None:
    value = getattr(entry.attributes.get(name), "value", None)
    return value if isinstance(value, int) else None


def _get_text(entry: Any) -> str:
    value = getattr(entry.attributes.get("DW_AT_name"), "value", b"")
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _decode_expression(data: Any, parser: DWARFExprParser) -> tuple[Operation, ...]:
    return tuple((one.op_name, tuple(one.args)) for one in parser.parse_expr(data))
