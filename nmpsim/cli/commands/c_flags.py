"""``nmpsim c-flags``: print compiler and linker flags for C programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from nmpsim.cli.loading import load_device
from nmpsim.cli.options import make_device_option
from nmpsim.cli.parameters import InputFile, Positive, define_command, define_option
from nmpsim.records import frozen


@frozen(kw_only=True)
class CFlagsOptions:
    """Options of ``nmpsim c-flags``."""

    compiler: Literal["gcc", "clang"] = define_option("Compiler of the flags.", default="gcc")
    libc: Literal["auto", "picolibc", "none"] = define_option(
        "C library of the programs.", default="auto"
    )
    device: InputFile | None = make_device_option("the NMP")
    stack: Positive = define_option("Bytes of each core's stack.", default=8192)
    heap: Positive = define_option("Bytes of the heap in DRAM.", default=1 << 18)
    all_cores: bool = define_option("Call main on all cores instead of core 0.", default=False)
    kernel: bool = define_option("Link a kernel, a layer of a network.", default=False)
    compile: bool = define_option("Print only the flags for compiling with -c.", default=False)
    copy_to: Path | None = define_option(
        "Copy the kit to a folder and use it in the flags.", default=None
    )


@define_command
def command(options: CFlagsOptions) -> None:
    """Print compiler and linker flags for C programs.

    Example: riscv64-unknown-elf-gcc $(nmpsim c-flags) prog.c -o prog.elf
    """
    from nmpsim.ckit.flags import FOLDER, KitOptions, copy_kit, make_flags
    from nmpsim.config import resolve_device

    folder = options.copy_to or FOLDER
    kit = KitOptions(
        compiler=options.compiler,
        library=options.libc,
        stack_bytes=options.stack,
        heap_bytes=options.heap,
        all_cores=options.all_cores,
        is_kernel=options.kernel,
        compiles_only=options.compile,
    )
    flags = make_flags(kit, resolve_device(load_device(options.device)), folder)
    if options.copy_to is not None:
        copy_kit(options.copy_to)
    sys.stdout.write(" ".join(flags) + "\n")
