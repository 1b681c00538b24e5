"""Read the debug information of a program within limits; damage never stops a run."""

from __future__ import annotations

import gc
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.read import Bundle
from nmpsim.debuginfo.source_map import CodeFunction, SourceMap
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.escape import escape_line
from nmpsim.extras import require_extra

MAX_BYTES = 16 << 20
"""Largest size of all DWARF sections together."""
CALLS_PER_BYTE = 200
"""Limit of the calls and returns of functions for each byte."""
MIN_CALLS = 100_000
MAX_CALLS = 50_000_000
"""Limits of the number of calls; the largest takes about ten seconds."""
_COMPRESSED = 1 << 11
"""Flag of a compressed section, which is left out."""
_MAX_REASON = 200
"""Maximum length of the reason in a warning."""


class DebugInfoError(Exception):
    """Exception raised if debug information cannot be used, with the reason."""


def read_source_map(bundle: Bundle, *, requires_lines: bool = False) -> SourceMap:
    """Read the source map of a bundle from its DWARF sections, and from its symbols without these.

    Parameters
    ----------
    bundle
        The program.
    requires_lines
        Whether to raise an error instead of returning a source map without source lines.

    Returns
    -------
    SourceMap
        The source map; its ``warning`` is set if the file has DWARF sections that cannot be used.

    Raises
    ------
    UserError
        LINE001 if source lines are required, but missing or damaged; PKG001 if they are required
        and pyelftools is not installed.
    """
    found = SourceMap()
    sections = _find_sections(bundle)
    try:
        found = _decode(sections) if sections else found
    except DebugInfoError as error:
        text = f"the debug information of {escape_line(bundle.path)} is damaged: {error}"
        found = SourceMap(warning=text)
    except UserError as error:
        if requires_lines:
            raise
        (missing,) = error.diagnostics
        found = SourceMap(warning=f"{missing.message}: {missing.found}. {missing.hint}")
    if requires_lines and not found.lines:
        raise fail(
            "LINE001",
            found.warning or "the program has no line table",
            place=Place(bundle.path),
            expected="an ELF file with a section .debug_line",
            hint="Compile the sources with the option -g.",
        )
    return attrs.evolve(found, functions=(*found.functions, *_list_labels(bundle, found)))


def _find_sections(bundle: Bundle) -> dict[str, tuple[int, bytes]]:
    """Return the address and contents of each DWARF section that is not compressed, by name."""
    file = ElfFile(bundle.file, bundle.path)
    return {
        name: (section.address, bytes(file.read_section(section)))
        for name, section in file.sections.items()
        if name.startswith((".debug_", ".eh_frame")) and not section.flags & _COMPRESSED
    }


def _decode(sections: Mapping[str, tuple[int, bytes]]) -> SourceMap:
    """Decode DWARF sections; raise DebugInfoError if they are damaged or too large."""
    with require_extra("elf", "debug information cannot be read"):
        from nmpsim.debuginfo.dwarf import decode_dwarf
    nbytes = sum(len(data) for _, data in sections.values())
    if nbytes > MAX_BYTES:
        raise DebugInfoError(f"it has {nbytes:,} bytes, but at most {MAX_BYTES:,} are read")
    try:
        with _limit_calls(min(MIN_CALLS + CALLS_PER_BYTE * nbytes, MAX_CALLS)):
            return decode_dwarf(sections)
    except DebugInfoError:
        raise
    except Exception as error:  # whatever pyelftools raises for damaged sections
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise DebugInfoError(escape_line(text)[:_MAX_REASON]) from error


@contextmanager
def _limit_calls(most: int) -> Iterator[None]:
    """Raise DebugInfoError if the code in the ``with`` block calls more functions than allowed."""
    left = most

    def count_event(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DebugInfoError(f"decoding it takes more than {most:,} calls")

    previous, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # finalizers of other objects would count
    sys.setprofile(count_event)
    try:
        yield
    finally:
        sys.setprofile(previous)
        if collects:
            gc.enable()


def _list_labels(bundle: Bundle, known: SourceMap) -> Iterator[CodeFunction]:
    """Yield the code symbols outside of known functions; each ends at its size or the next one."""
    for first, end in bundle.text:
        symbols = sorted(
            (address, -bundle.symbol_sizes.get(name, 0), name)
            for name, address in bundle.symbols.items()
            if first <= address < end and known.find_function(address) is None
        )
        limits = sorted({*(one.start for one in known.functions), *(s[0] for s in symbols), end})
        covered = first
        for address, size, name in symbols:
            if address < covered:
                continue
            covered = limits[bisect_right(limits, address)] if size == 0 else address - size
            yield CodeFunction(address, covered, name)
