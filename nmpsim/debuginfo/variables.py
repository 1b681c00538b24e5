"""Decode the variables of functions that DWARF sections place at fixed offsets in stack frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from elftools.dwarf.dwarf_expr import DWARFExprParser

from nmpsim.debuginfo.source_map import StackVariable

_SCOPES = ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")
_VARIABLES = ("DW_TAG_variable", "DW_TAG_formal_parameter")
_MAX_TYPES = 32
"""Maximum number of qualifiers and typedefs between a variable and its type."""

RangeLister = Callable[[Any], Iterator[tuple[int, int]]]
"""Return the address ranges of an entry."""


def decode_stack_variables(
    unit: Any, parser: DWARFExprParser, list_ranges: RangeLister, find_origin: Callable[[Any], Any]
) -> Iterator[StackVariable]:
    """Yield the stack variables of a compilation unit, one for each address range of its scope.

    Only functions whose frame base is the canonical frame address are decoded.
    """
    scopes: list[list[tuple[int, int]]] = [[]]
    is_cfa = [False]
    for entry in unit.iter_DIEs():
        if entry.is_null():
            scopes.pop()
            is_cfa.pop()
            continue
        ranges, has_cfa = scopes[-1], is_cfa[-1]
        if entry.tag in _SCOPES:
            ranges = [one for one in list_ranges(entry) if one[0] < one[1]] or ranges
        if entry.tag == "DW_TAG_subprogram":
            base = _parse_location(entry.attributes.get("DW_AT_frame_base"), parser)
            has_cfa = [one.op_name for one in base] == ["DW_OP_call_frame_cfa"]
        if entry.tag in _VARIABLES and has_cfa:
            place = _parse_location(entry.attributes.get("DW_AT_location"), parser)
            origin = find_origin(entry)
            name, nbytes = origin.attributes.get("DW_AT_name"), _compute_size(origin)
            if len(place) == 1 and place[0].op_name == "DW_OP_fbreg" and name and nbytes > 0:
                text = name.value.decode(errors="replace")
                for start, end in ranges:
                    yield StackVariable(start, end, text, place[0].args[0], nbytes)
        if entry.has_children:
            scopes.append(ranges)
            is_cfa.append(has_cfa)


def _parse_location(attribute: Any, parser: DWARFExprParser) -> list[Any]:
    """Return the operations of a location; [] for a list of locations."""
    if attribute is None or attribute.form not in ("DW_FORM_exprloc", "DW_FORM_block1"):
        return []
    operations: list[Any] = parser.parse_expr(attribute.value)
    return operations


def _compute_size(entry: Any) -> int:
    """Compute the bytes of a variable, or 0 if its type has no known size."""
    count = 1
    for _ in range(_MAX_TYPES):
        if "DW_AT_byte_size" in entry.attributes:
            return count * int(entry.attributes["DW_AT_byte_size"].value)
        if entry.tag == "DW_TAG_array_type":
            for child in entry.iter_children():
                bound = child.attributes.get("DW_AT_upper_bound")
                extent = child.attributes.get("DW_AT_count")
                if bound is not None and isinstance(bound.value, int):
                    count *= bound.value + 1
                elif extent is not None and isinstance(extent.value, int):
                    count *= extent.value
                else:
                    return 0
        if "DW_AT_type" not in entry.attributes:
            return 0
        entry = entry.get_DIE_from_attribute("DW_AT_type")
    return 0
