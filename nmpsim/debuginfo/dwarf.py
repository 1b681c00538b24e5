"""Decode the DWARF sections of an ELF file with pyelftools.

Damaged sections can make pyelftools raise exceptions of any type, or loop. The caller limits the
number of calls and catches exceptions (:mod:`nmpsim.debuginfo.read`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

from elftools.dwarf.callframe import FDE
from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
from elftools.dwarf.ranges import BaseAddressEntry

from nmpsim.debuginfo.source_map import (
    CodeFunction,
    InlinedCall,
    LineRow,
    SourceLine,
    SourceMap,
    SourceVariable,
    UnwindRow,
)
from nmpsim.debuginfo.variables import VariableDecoder

SECTIONS = {
    f"{'' if name == 'eh_frame' else 'debug_'}{name}_sec": f".{prefix}{name}"
    for prefix, names in {
        "debug_": "info aranges abbrev frame str loc ranges line pubtypes pubnames addr str_offsets"
        " line_str loclists rnglists sup types",
        "": "eh_frame",
    }.items()
    for name in names.split()
}
"""Argument of pyelftools' ``DWARFInfo`` -> name of the section."""
_FUNCTION, _INLINED = "DW_TAG_subprogram", "DW_TAG_inlined_subroutine"
_MAX_ORIGINS = 8
"""Maximum number of entries that are followed to find the name of a function."""


def decode_dwarf(sections: Mapping[str, tuple[int, bytes]]) -> SourceMap:
    """Decode DWARF sections, given as address and contents by name.

    Raises any exception if the sections are damaged.
    """
    info = _open(sections)
    functions: list[CodeFunction] = []
    inlined: list[InlinedCall] = []
    lines: list[LineRow] = []
    variables: list[SourceVariable] = []
    decoder = VariableDecoder(info.location_lists(), _find_origin)
    for unit in info.iter_CUs() if info.debug_info_sec else ():
        program = info.line_program_for_CU(unit)
        files = [] if program is None else _list_files(unit, program)
        lines += () if program is None else _decode_lines(program, files)
        functions_here, inlined_here = _decode_functions(info, unit, files)
        functions += functions_here
        inlined += inlined_here
        ranges = partial(_list_ranges, info, unit)
        variables += decoder.decode_unit(unit, ranges)
    rows = tuple(_decode_unwind_rows(info))
    return SourceMap(functions, inlined, lines, rows, variables, decoder.types)


def _open(sections: Mapping[str, tuple[int, bytes]]) -> DWARFInfo:
    arguments: dict[str, Any] = dict.fromkeys((*SECTIONS, "gnu_debugaltlink_sec"))
    for argument, name in SECTIONS.items():
        if name in sections:
            address, data = sections[name]
            arguments[argument] = DebugSectionDescriptor(
                BytesIO(data), name, None, len(data), address
            )
    return DWARFInfo(config=DwarfConfig(True, "RISC-V", 4), **arguments)


# --- line table -----------------------------------------------------------------------------------


def _list_files(unit: Any, program: Any) -> list[str]:
    """Return the paths of a unit's source files in the order of their numbers."""
    header = program.header
    top = unit.get_top_DIE()
    base = _decode_text(top.attributes.get("DW_AT_comp_dir"))
    folders = [one.decode(errors="replace") for one in header["include_directory"]]
    # Before DWARF 5, numbers begin at 1, and folder 0 is that of the compilation.
    is_old = header["version"] < 5
    folders = [base, *folders] if is_old else folders
    unknown = [_decode_text(top.attributes.get("DW_AT_name")) or "?"] * is_old
    return unknown + [
        posixpath.normpath(
            posixpath.join(base, folders[one.dir_index], one.name.decode(errors="replace"))
        )
        for one in header["file_entry"]
    ]


def _decode_lines(program: Any, files: Sequence[str]) -> Iterator[LineRow]:
    """Yield the rows of a line program; each row ends where the next one begins."""
    last = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if last is not None and last.line > 0 and state.address >= last.address:
            source = SourceLine(files[last.file], last.line)
            yield LineRow(last.address, state.address, source, bool(last.is_stmt))
        last = None if state.end_sequence else state


# --- functions ------------------------------------------------------------------------------------


def _decode_functions(
    info: DWARFInfo, unit: Any, files: Sequence[str]
) -> tuple[list[CodeFunction], list[InlinedCall]]:
    """Return the functions and the inlined calls of a compilation unit."""
    functions: list[CodeFunction] = []
    inlined: list[InlinedCall] = []
    depths: list[bool] = []
    """Whether each entry on the path to the current one is an inlined call."""
    for entry in unit.iter_DIEs():
        if entry.is_null():
            depths.pop()
            continue
        if entry.tag in (_FUNCTION, _INLINED):
            origin = _find_origin(entry)
            ranges = [one for one in _list_ranges(info, unit, entry) if one[0] < one[1]]
            name = _decode_text(origin.attributes.get("DW_AT_name")) or "?"
            if entry.tag == _FUNCTION:
                declared = _find_line(origin, "decl", files)
                functions += [
                    CodeFunction(start, end, name, declared, is_entry=number == 0)
                    for number, (start, end) in enumerate(ranges)
                ]
            else:
                call = _find_line(entry, "call", files)
                inlined += [InlinedCall(*pair, name, call, sum(depths)) for pair in ranges]
        if entry.has_children:
            depths.append(entry.tag == _INLINED)
    return functions, inlined


def _find_origin(entry: Any) -> Any:
    """Return the entry that an inlined, cloned or separately declared function refers to."""
    for _ in range(_MAX_ORIGINS):
        references = ("DW_AT_abstract_origin", "DW_AT_specification")
        reference = next((name for name in references if name in entry.attributes), None)
        if reference is None or "DW_AT_name" in entry.attributes:
            break
        entry = entry.get_DIE_from_attribute(reference)
    return entry


def _find_line(entry: Any, prefix: str, files: Sequence[str]) -> SourceLine | None:
    """Return the line of a declaration or call, or None if the entry does not name one."""
    file, line = (entry.attributes.get(f"DW_AT_{prefix}_{what}") for what in ("file", "line"))
    if file is None or line is None:
        return None
    return SourceLine(files[file.value], line.value)


def _list_ranges(info: DWARFInfo, unit: Any, entry: Any) -> Iterator[tuple[int, int]]:
    """Yield the first address and the end of each address range of an entry."""
    low, high = (entry.attributes.get(f"DW_AT_{name}_pc") for name in ("low", "high"))
    if low is not None and high is not None:
        is_address = high.form in ("DW_FORM_addr", "DW_FORM_addrx")
        yield low.value, high.value if is_address else low.value + high.value
    if "DW_AT_ranges" not in entry.attributes:
        return
    top = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
    base = 0 if top is None else top.value
    offset = entry.attributes["DW_AT_ranges"].value
    lists: Any = info.range_lists()
    for one in lists.get_range_list_at_offset(offset, unit):
        if isinstance(one, BaseAddressEntry):
            base = one.base_address
        else:
            added = 0 if one.is_absolute else base
            yield added + one.begin_offset, added + one.end_offset


def _decode_text(attribute: Any) -> str:
    if attribute is None or not isinstance(attribute.value, bytes):
        return ""
    return attribute.value.decode(errors="replace")


# --- call frames ----------------------------------------------------------------------------------


def _decode_unwind_rows(info: DWARFInfo) -> Iterator[UnwindRow]:
    """Yield the unwind rules; ranges whose rules are DWARF expressions are left out."""
    entries = [*info.CFI_entries()] if info.has_CFI() else []
    entries += info.EH_CFI_entries() if info.has_EH_CFI() else ()
    for entry in entries:
        if not isinstance(entry, FDE):
            continue
        first = entry.header["initial_location"]
        end = first + entry.header["address_range"]
        rows = entry.get_decoded().table
        for row, after in zip(rows, [*rows[1:], {"pc": end}], strict=True):
            rule = row["cfa"]
            saved = {
                number: value.arg
                for number, value in row.items()
                if isinstance(number, int) and value.type == "OFFSET"
            }
            if rule.reg is not None:
                cie: Any = entry.cie
                register = cie.header["return_address_register"]
                yield UnwindRow(row["pc"], after["pc"], rule.reg, rule.offset, register, saved)
