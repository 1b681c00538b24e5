"""Functions, lines, inlined calls and unwind rules of ELF programs and of assembly."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmpsim.bundle import Bundle, parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.debuginfo import SourceLine, SourceMap, read_source_map
from nmpsim.diagnostics import UserError

PROGRAMS = Path(__file__).parent / "programs"
"""``fir.elf`` was made from the other files by GCC 12.2.0 with the options -march=rv32im_zicsr
-mabi=ilp32 -nostdlib -ffreestanding -g -O1 -ffile-prefix-map=$PWD=. -Wa,--debug-prefix-map,$PWD=.
-T link.ld."""
CODE = 0x8000_0000
GCC = "riscv64-unknown-elf-gcc"
CLANG = "clang"
ADDR2LINE = "riscv64-unknown-elf-addr2line"
MACHINE = ("-nostdlib", "-ffreestanding", "-Tlink.ld")
COMPILERS = {
    "dwarf5": (GCC, "-march=rv32im_zicsr", "-mabi=ilp32", "-g", "-O1"),
    "dwarf4": (GCC, "-march=rv32im_zicsr", "-mabi=ilp32", "-gdwarf-4", "-O2"),
    "dwarf2": (GCC, "-march=rv32im_zicsr", "-mabi=ilp32", "-gdwarf-2", "-gstrict-dwarf", "-O0"),
    "clang": (CLANG, "--target=riscv32", "-march=rv32im", "-fuse-ld=lld", "-g", "-O1"),
}


@pytest.fixture(scope="module")
def fir() -> Bundle:
    return read_bundle(PROGRAMS / "fir.elf")


def parse_changed(fir: Bundle, section: str, at: int, value: int) -> Bundle:
    """Return the program with one byte of a DWARF section changed."""
    data = bytearray(fir.file)
    data[data.index(bytes(fir.debug[section])) + at] = value
    return parse_bundle(bytes(data), "fir.elf")


def test_functions_have_declarations_and_other_code_has_labels(fir: Bundle) -> None:
    found = {one.name: one for one in read_source_map(fir).functions}
    assert found["fir"].declaration == SourceLine("fir.c", 12)
    assert (found["fir"].start, found["fir"].end) == (CODE + 0x18, CODE + 0x50)
    assert found["_start"].declaration is None
    assert (found["_start"].start, found["_start"].end) == (CODE, CODE + 0x14)


def test_an_inlined_call_has_a_frame_of_its_own(fir: Bundle) -> None:
    source_map = read_source_map(fir)
    inner, outer = source_map.list_frames(CODE + 0x34)
    assert (inner.function, inner.source, inner.is_inlined) == (
        "multiply",
        SourceLine("fir.c", 8),
        True,
    )
    assert (outer.function, outer.source) == ("fir", SourceLine("fir.c", 15))
    assert source_map.describe(CODE + 0x34) == "multiply (fir.c:8)"


def test_a_line_has_its_first_address_in_each_function(fir: Bundle) -> None:
    source_map = read_source_map(fir)
    assert source_map.find_line_addresses(SourceLine("fir.c", 14)) == (CODE + 0x1C,)
    assert source_map.find_line_addresses(SourceLine("fir.c", 8)) == (CODE + 0x2C,)
    assert source_map.find_line_addresses(SourceLine("fir.c", 10)) == ()
    assert source_map.find_files("fir.c") == ("fir.c",)
    assert source_map.find_files("ir.c") == ()


def test_unwind_rules_say_where_registers_are_saved(fir: Bundle) -> None:
    row = read_source_map(fir).find_unwind_row(CODE + 0x74)
    assert row is not None
    assert (row.base_register, row.base_offset, row.return_register) == (2, 16, 1)
    assert row.saved == {1: -4, 8: -8, 9: -12, 18: -16}


def test_assembly_has_labels() -> None:
    bundle = parse_bundle(
        assemble(
            "_start: nop\nloop: nop\nj loop\n", "t.s", default_device().settings()
        ).build_bundle()
    )
    source_map = read_source_map(bundle)
    start = source_map.find_function_starts("_start")[0]
    assert source_map.describe(start) == "_start"
    assert source_map.describe(start + 8) == "loop+4"
    assert source_map.find_line(start) is None
    assert source_map.describe(0) == ""


def test_lines_that_are_required_but_missing_are_an_error() -> None:
    bundle = parse_bundle(
        assemble("_start: nop\n", "t.s", default_device().settings()).build_bundle()
    )
    with pytest.raises(UserError) as error:
        read_source_map(bundle, requires_lines=True)
    assert error.value.diagnostics[0].code == "LINE001"


@pytest.mark.parametrize(
    ("section", "at", "value"),
    [(".debug_info", 4, 77), (".debug_line", 17, 1), (".debug_frame", 4, 9)],
)
def test_damage_is_a_warning_and_symbols_remain(
    fir: Bundle, section: str, at: int, value: int
) -> None:
    damaged = parse_changed(fir, section, at, value)
    source_map = read_source_map(damaged)
    assert source_map.warning.startswith("the debug information of fir.elf is damaged: ")
    assert source_map.describe(CODE + 0x1C) == "fir+4"
    with pytest.raises(UserError, match="is damaged"):
        read_source_map(damaged, requires_lines=True)


def test_a_huge_count_of_files_ends_at_the_limit_of_calls(fir: Bundle) -> None:
    line = bytes(fir.debug[".debug_line"])
    # The first line program, of DWARF 5, has formats of one folder; here it has none and 2**28.
    at = line.index(bytes([1, 1, 0x1F]))
    data = bytearray(fir.file)
    start = data.index(line) + at
    data[start : start + 5] = bytes([0, 0x80, 0x80, 0x80, 0x7F])
    source_map = read_source_map(parse_bundle(bytes(data), "fir.elf"))
    assert "damaged: decoding it takes more than" in source_map.warning


def test_finalizers_of_other_objects_do_not_count(
    fir: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    collects = []

    def decode(_: object) -> SourceMap:
        collects.append(gc.isenabled())
        return SourceMap()

    monkeypatch.setattr("nmpsim.debuginfo.dwarf.decode_dwarf", decode)
    read_source_map(fir)
    assert (collects, gc.isenabled()) == ([False], True)


def test_without_pyelftools_symbols_remain(fir: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elftools.dwarf.callframe", None)
    monkeypatch.delitem(sys.modules, "nmpsim.debuginfo.dwarf", raising=False)
    source_map = read_source_map(fir)
    assert "[elf]" in source_map.warning
    assert source_map.describe(CODE + 0x1C) == "fir+4"
    with pytest.raises(UserError) as error:
        read_source_map(fir, requires_lines=True)
    assert error.value.diagnostics[0].code == "PKG001"


@pytest.mark.parametrize("name", COMPILERS)
def test_lines_and_inlined_calls_equal_those_of_addr2line(name: str, tmp_path: Path) -> None:
    compiler, *options = COMPILERS[name]
    for tool in (compiler, ADDR2LINE):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    elf = tmp_path / "fir.elf"
    command = [compiler, *options, *MACHINE, "start.S", "fir.c", "-o", str(elf)]
    subprocess.run(command, cwd=PROGRAMS, check=True)
    bundle = read_bundle(elf)
    source_map = read_source_map(bundle, requires_lines=True)
    assert not source_map.warning
    end = max(one.end for one in source_map.functions if one.name in ("fir", "main"))
    addresses = range(CODE, end, 4)
    command = [ADDR2LINE, "-fiae", str(elf), *map(hex, addresses)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for address, text in zip(addresses, found.split("0x")[1:], strict=True):
        _, *lines = text.splitlines()
        places = [Path(place.split(" ")[0]).name for place in lines[1::2]]
        frames = source_map.list_frames(address)
        if places[0].endswith(":?"):  # code that belongs to no line
            assert frames[0].source is None
            continue
        assert places == [str(frame.source) for frame in frames], hex(address)
        if places[0].startswith("fir.c"):
            assert lines[::2] == [frame.function for frame in frames], hex(address)
