"""The check of pointers, on programs in C and in assembly."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from core_machines import device

from nmpsim.bundle import Bundle, parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.ckit.flags import FOLDER, KitOptions, make_flags
from nmpsim.core.device import Device
from nmpsim.debugger.pointer_check import PointerCheck
from nmpsim.debuginfo.read import read_source_map
from nmpsim.debuginfo.source_map import (
    CodeFunction,
    LineRow,
    Location,
    SourceLine,
    SourceMap,
    SourceVariable,
    UnwindRow,
)
from nmpsim.diagnostics import Diagnostic, UserError

COMPILER = "riscv64-unknown-elf-gcc"
PROGRAMS = Path(__file__).parent / "pointer_programs"
MARK = "// ERROR: "
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="GCC is not installed")


def check(
    bundle: Bundle, source_map: SourceMap, cores: int = 1, allocators: Sequence[str] = ()
) -> list[Diagnostic]:
    """Run a program on the reference engine and return the findings of the check."""
    pointers = PointerCheck(bundle, source_map, cores, allocators)
    report = Device(device(cores), engine="reference").run(
        bundle, {}, commits=pointers, strict=False
    )
    assert report.trap is None and not report.exit_status
    return [one.make_diagnostic() for one in pointers.findings]


def compile_program(name: str, optimization: str, folder: Path) -> Bundle:
    """Compile a program in C with debug information, and load it."""
    link = (f"-T{PROGRAMS / 'link.ld'}", "-Wl,-n,--emit-relocs,--no-warn-rwx-segments")
    machine = ("-march=rv32im", "-mabi=ilp32", "--specs=picolibc.specs")
    flags = (*machine, "-nostartfiles", "-nostdlib", "-fno-section-anchors", *link)
    return compile_with(flags, name, folder, optimization, "-lc", "-lgcc")


def compile_with_kit(name: str, folder: Path, *options: str) -> Bundle:
    """Compile a program with the C kit and the C library, and load it."""
    return compile_with(make_flags(KitOptions(), device(1), FOLDER), name, folder, *options)


def compile_with(flags: Sequence[str], name: str, folder: Path, *options: str) -> Bundle:
    built = folder / "program.elf"
    command = [COMPILER, *flags, "-g", "-w", str(PROGRAMS / name), *options, "-o", str(built)]
    subprocess.run(command, check=True)
    return read_bundle(built)


RELOCATED = ("-fno-section-anchors", "-Wl,--emit-relocs")


def find_messages(
    name: str, bundle: Bundle, allocators: Sequence[str] = ()
) -> dict[int, list[str]]:
    """Return the messages of the check by line of a program; errors of callees are at the call."""
    messages: dict[int, list[str]] = {}
    for one in check(bundle, read_source_map(bundle, requires_lines=True), 1, allocators):
        called = re.search(rf"\({re.escape(name)}:(\d+)\)", one.hint or "")
        is_library = not str(one.place).startswith(str(PROGRAMS / name))
        line = int(called[1]) if is_library and called else int(str(one.place).split(":")[-1])
        messages.setdefault(line, []).append(one.message)
    return messages


def read_expected(name: str) -> dict[int, str]:
    lines = (PROGRAMS / name).read_text(encoding="utf-8").splitlines()
    return {n: line.split(MARK)[1] for n, line in enumerate(lines, 1) if MARK in line}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("errors.c", 31), ("heap_errors.c", 16)])
def test_each_error_of_a_program_in_c_is_named_with_its_line(
    tmp_path: Path, name: str, count: int
) -> None:
    if name == "errors.c":
        bundle, allocators = compile_program(name, "-O0", tmp_path), ()
    else:
        bundle, allocators = compile_with_kit(name, tmp_path, "-O0", *RELOCATED), ("take,give",)
    messages, expected = find_messages(name, bundle, allocators), read_expected(name)
    assert len(expected) == count
    assert messages.keys() == expected.keys()
    for line, text in expected.items():
        assert any(text in message for message in messages[line]), (line, messages[line])


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("options", [RELOCATED, ()], ids=["relocated", "anchored"])
@pytest.mark.parametrize("optimization", ["-O0", "-Og", "-O2"])
def test_twenty_correct_programs_have_no_finding(
    tmp_path: Path, optimization: str, options: tuple[str, ...]
) -> None:
    for number in range(1, 21):
        define = f"-DPROGRAM={number}"
        bundle = compile_with_kit("correct.c", tmp_path, optimization, define, *options)
        assert check(bundle, read_source_map(bundle, requires_lines=True)) == [], number


@needs_compiler
@pytest.mark.slow
def test_flags_of_the_compiler_limit_the_check_and_are_reported(tmp_path: Path) -> None:
    flags = list(make_flags(KitOptions(), device(1), FOLDER))
    without = [flag for flag in flags if flag != "-Wl,--emit-relocs"]
    assert without != flags
    for chosen, text in ((without, "without relocations"), (flags, "code with section")):
        bundle = compile_with(chosen, "correct.c", tmp_path, "-O2", "-DPROGRAM=4")
        source_map = read_source_map(bundle)
        limit, *_ = PointerCheck(bundle, source_map, 1).make_report().limits
        assert limit.startswith(text)
    with pytest.raises(UserError) as error:
        PointerCheck(bundle, source_map, 1, ("none",))
    assert error.value.diagnostics[0].code == "ARG001"


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("optimization", ["-O0", "-Og", "-O1", "-O2", "-Os"])
def test_correct_programs_in_c_have_no_finding(tmp_path: Path, optimization: str) -> None:
    bundle = compile_program("clean.c", optimization, tmp_path)
    assert check(bundle, read_source_map(bundle, requires_lines=True)) == []


def check_assembly(text: str, cores: int = 1, frame_bytes: int = 0) -> list[str]:
    """Check a program with the object ``taps`` of 8 bytes and, on the stack, ``buf`` of 8 bytes."""
    settings = device(cores).settings()
    start = """
        .buffer before, i8[S:1.0 O:0]<64>
        .buffer taps, i8[S:1.0 O:0]<64>
        .buffer stack, i8[S:1.0 O:0]<1024>
        _start:
    """
    bundle = parse_bundle(assemble(start + text, device=settings).build_bundle())
    bundle = attrs.evolve(bundle, symbol_sizes={**bundle.symbol_sizes, "taps": 8})
    ((first, end),) = bundle.text
    lines = [
        LineRow(pc, pc + 4, SourceLine("x.c", (pc - first) // 4 + 1), True)
        for pc in range(first, end, 4)
    ]
    place = Location(first, end, (("DW_OP_fbreg", (-8,)),))
    source_map = SourceMap(
        functions=(CodeFunction(first, end, "f"),),
        lines=lines,
        unwind_rows=(UnwindRow(first, end, 2, frame_bytes, 1, {}),),
        variables=(
            SourceVariable(first, end, "buf", 8, (place,), (("DW_OP_call_frame_cfa", ()),)),
        ),
    )
    return [f"{one.place}: {one.message}" for one in check(bundle, source_map, cores)]


def test_an_access_after_an_object_is_named_and_accesses_inside_are_not() -> None:
    text = """
        la a0, taps
        lw a1, 0(a0)
        sw a1, 4(a0)
        addi a2, a0, 12
        sw a1, -4(a2)
        sb a1, -13(a2)
        nmp.halt
    """
    assert check_assembly(text) == [
        "x.c:6: in f: store of 4 bytes at taps+8, 0 bytes after the end of taps (8 bytes)",
        "x.c:7: in f: store of 1 byte at taps-1, 1 byte before the start of taps (8 bytes)",
    ]


def test_a_pointer_keeps_its_object_when_it_is_copied_in_bytes() -> None:
    copies = "".join(f"lbu a1, {n}(s0)\nsb a1, {n + 4}(s0)\n" for n in range(4))
    text = (
        f"la a0, taps\nlui s0, 0x20000\nsw a0, 0(s0)\n{copies}lw a2, 4(s0)\nlw a3, 8(a2)\nnmp.halt"
    )
    (found,) = check_assembly(text)
    assert found.endswith("load of 4 bytes at taps+8, 0 bytes after the end of taps (8 bytes)")


STACK = "la t0, stack\naddi sp, t0, 512\naddi sp, sp, -16\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("addi a0, sp, 8\nsw x0, 0(a0)\nlw a1, 4(a0)\nbeq a1, x0, next\nnext: nmp.halt",
         "a value that was never written decides a branch"),
        ("addi a0, sp, 8\nsw x0, 8(a0)\nnmp.halt",
         "store of 4 bytes at buf+8, 0 bytes after the end of buf (8 bytes, variable of f)"),
        ("addi a0, sp, 8\naddi sp, sp, 16\nlw a1, 0(a0)\nnmp.halt",
         "load of 4 bytes at buf, a variable of f, which has returned"),
        ("addi a0, x0, 2\nslli a0, a0, 2\nadd a0, a0, sp\nsw x0, 8(a0)\nnmp.halt",
         "store of 4 bytes at buf+8, 0 bytes after the end of buf (8 bytes, variable of f)"),
        ("addi a0, sp, 8\nsw x0, 4(a0)\nlw a1, 4(a0)\nbeq a1, x0, next\nnext: nmp.halt", ""),
    ],
)  # fmt: skip
def test_wrong_uses_of_a_stack_variable_are_named(text: str, expected: str) -> None:
    found = check_assembly(STACK + text, frame_bytes=16)
    assert [one.split("in f: ")[1] for one in found] == ([expected] if expected else [])


def test_an_address_in_the_scratchpad_of_another_core_is_named() -> None:
    text = """
        csrrs a0, mhartid, x0
        la t0, taps
        bne a0, x0, second
        lui sp, 0x20001
        addi sp, sp, -16
        addi a1, sp, 8
        sw a1, 0(a1)
        sw a1, 0(t0)
        addi t1, x0, 1
        addi t2, x0, 2
        nmp.barrier t1, t2
        nmp.halt
    second:
        addi t1, x0, 1
        addi t2, x0, 2
        nmp.barrier t1, t2
        lw a1, 0(t0)
        sw x0, 0(a1)
        nmp.halt
    """
    (found,) = check_assembly(text, cores=2, frame_bytes=16)
    assert found.endswith(
        "store of 4 bytes at buf, which is in the scratchpad of core 0, by core 1"
    )
