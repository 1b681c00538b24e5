"""C programs compiled with GCC and clang, each once in a session."""

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nmpsim.bundle import Bundle, read_bundle
from nmpsim.ckit.flags import GCC, Compiler, KitOptions, Library, make_flags
from nmpsim.config import default_device

Compile = Callable[..., Bundle]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Return a function that compiles C text to a program; skip without the compiler."""
    folder = tmp_path_factory.mktemp("c")

    @cache
    def build(
        text: str,
        compiler: Compiler = "gcc",
        library: Library = "none",
        all_cores: bool = False,
        *flags: str,
    ) -> Bundle:
        command = GCC if compiler == "gcc" else compiler
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")
        if compiler == "clang" and shutil.which("ld.lld") is None:
            pytest.skip("ld.lld is not installed")
        options = KitOptions(
            compiler=compiler,
            library=library,
            all_cores=all_cores,
            is_kernel="NMP_KERNEL" in text,
        )
        number = len(list(folder.iterdir()))
        source, program = folder / f"p{number}.c", folder / f"p{number}.elf"
        source.write_text(text, encoding="utf-8")
        words = [*make_flags(options, default_device()), "-O1", "-Wall", "-Wextra", "-Werror"]
        done = subprocess.run(
            [command, *words, *flags, str(source), "-o", str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return read_bundle(Path(program))

    return build
