"""Compiler and linker flags with which C programs become ELF programs for the device."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from nmpsim.bundle.layout import KERNEL_BASE, RW_BASE
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.table import DRAM_BASE
from nmpsim.records import frozen

FOLDER = Path(__file__).with_name("files")
"""Folder of the files of the kit."""
Compiler = Literal["gcc", "clang"]
Library = Literal["auto", "picolibc", "none"]
GCC = "riscv64-unknown-elf-gcc"
PICOLIBC_SPECS = "picolibc.specs"
MULTILIB = "rv32im/ilp32"
"""Folder of the libraries for the device in GCC's and picolibc's folders."""
STACK_BYTES = 8192
HEAP_BYTES = 1 << 18
_PICOLIBC = Path("/usr/lib/picolibc/riscv64-unknown-elf")
"""Folder of Debian's picolibc, for compilers without its specs."""


@frozen(kw_only=True)
class KitOptions:
    """Options of the flags: compiler, C library, memory sizes, and how ``main`` is called."""

    compiler: Compiler = "gcc"
    library: Library = "auto"
    stack_bytes: int = STACK_BYTES
    heap_bytes: int = HEAP_BYTES
    all_cores: bool = False
    """Whether all cores call ``main``, instead of core 0."""
    is_kernel: bool = False
    """Whether the program is a kernel, which computes a layer of a network."""
    compiles_only: bool = False
    """Whether the flags are for compiling without linking, as with ``-c``."""


def copy_kit(folder: Path) -> None:
    """Copy the files of the kit to a folder; raise UserError (FILE002) if this fails."""
    try:
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    except OSError as error:
        raise fail(
            "FILE002",
            f"the C kit cannot be written: {error.strerror or error}",
            place=Place(str(folder)),
            hint="Pass a folder that you can write to.",
        ) from error


def make_flags(options: KitOptions, config: DeviceConfig, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the flags for a compiler, a device and the folder with the files of the kit.

    Raises
    ------
    UserError
        ARG001 if the stack is larger than the scratchpad, PKG001 if a library is missing, FILE001
        if the name of the folder contains a space, which shells would split.
    """
    if options.stack_bytes > config.scratchpad_bytes:
        raise fail(
            "ARG001",
            "the stack is larger than the scratchpad",
            found=f"a stack of {options.stack_bytes} bytes",
            expected=f"at most {config.scratchpad_bytes} bytes",
            hint="Pass a smaller size with --stack.",
        )
    if any(character.isspace() for character in str(folder)):
        raise fail(
            "FILE001",
            "the name of the folder with the C kit contains a space, at which shells split flags",
            place=Place(str(folder)),
            hint="Run `nmpsim c-flags --copy-to FOLDER` with a relative name without spaces.",
        )
    has_library = _find_library(options)
    flags = list(_compiler_flags(options, folder, has_library))
    if not options.compiles_only:
        flags += _linker_flags(options, config, folder, has_library)
    return tuple(flags)


def _find_library(options: KitOptions) -> bool:
    """Return whether to use picolibc; raise UserError (PKG001) if it is required but missing."""
    if options.library == "none":
        return False
    is_found = (
        (_PICOLIBC / "lib" / MULTILIB / "libc.a").exists()
        if options.compiler == "clang"
        else _ask_gcc(f"-print-file-name={PICOLIBC_SPECS}") != PICOLIBC_SPECS
    )
    if not is_found and options.library == "picolibc":
        raise fail(
            "PKG001",
            "picolibc is not installed for this compiler",
            found=f"no {PICOLIBC_SPECS} of {GCC}",
            hint="Install picolibc-riscv64-unknown-elf, or pass --libc none.",
        )
    return is_found


def _ask_gcc(*words: str) -> str:
    """Return the answer of GCC, or the name of the specs file if GCC is not installed."""
    try:
        done = subprocess.run(
            [GCC, *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return PICOLIBC_SPECS
    return done.stdout.strip()


def _compiler_flags(options: KitOptions, folder: Path, has_library: bool) -> Iterator[str]:
    if options.compiler == "clang":
        yield from ("--target=riscv32-unknown-elf", "-march=rv32im", "-mabi=ilp32", "-mno-relax")
        yield from ("-ftls-model=local-exec", "-Wno-unused-command-line-argument")
        if has_library:
            yield f"-isystem{_PICOLIBC / 'include'}"
    else:
        # GCC has libraries for rv32im only; this version of the manual includes Zicsr.
        yield from ("-march=rv32im", "-mabi=ilp32", "-misa-spec=2.2")
        yield f"-specs={PICOLIBC_SPECS if has_library else folder / 'nmp.specs'}"
    yield from ("-ffunction-sections", "-fdata-sections", f"-I{folder}")
    yield "-DNMP_LIBC" if has_library else "-ffreestanding"
    if options.all_cores:
        yield "-DNMP_ALL_CORES"


def _linker_flags(
    options: KitOptions, config: DeviceConfig, folder: Path, has_library: bool
) -> Iterator[str]:
    yield "-nostartfiles"
    symbols = {
        "__nmp_scratchpad_bytes": config.scratchpad_bytes,
        "__stack_size": options.stack_bytes,
        "__heap_size": options.heap_bytes,
        "__nmp_text_start": KERNEL_BASE if options.is_kernel else DRAM_BASE,
        "__nmp_data_start": RW_BASE if options.is_kernel else 0,
    }
    yield from (f"-Wl,--defsym={name}={value}" for name, value in symbols.items())
    yield from (f"-T{folder / 'nmp.ld'}", "-Wl,--gc-sections", "-Wl,--emit-relocs")
    yield f"-Wl,-e{KERNEL_BASE:#x}" if options.is_kernel else str(folder / "crt0.S")
    yield str(folder / ("nmp_stdio.c" if has_library else "nmp_memory.c"))
    if options.compiler == "clang":
        yield from ("-fuse-ld=lld", "-nostdlib")
        if has_library:
            yield from (f"-L{_PICOLIBC / 'lib' / MULTILIB}", "-lc")
        libgcc = Path(_ask_gcc("-march=rv32im", "-mabi=ilp32", "-print-libgcc-file-name"))
        if libgcc.exists():  # 64-bit division and more
            yield str(libgcc)
