"""The C kit: its files, its flags, and programs of GCC and clang on both engines."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nmpsim.bundle import Bundle, read_bundle
from nmpsim.ckit.flags import FOLDER, GCC, KitOptions, make_flags
from nmpsim.ckit.generate import GENERATED, render_file
from nmpsim.cli.app import app
from nmpsim.config import default_device, make_device_config
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import decode
from nmpsim.isa.table import INSTRUCTIONS
from nmpsim.report.data import RunReport

Compile = Callable[..., Bundle]
COMPILERS = ("gcc", "clang")
ENGINES = ("reference", "compiled")
CUSTOM = [one for one in INSTRUCTIONS if one.mnemonic.startswith("nmp.")]

PROGRAM = r"""
#include "nmp.h"

static int data[3] = {1, 20, 300};
static int sum;
static long long wide = 1000000000000;
NMP_SCRATCHPAD int8_t tile[64];
static const nmp_fill_t fill = {.output = tile, .count = sizeof tile, .value = -3};

int main(int argc, char **argv)
{
    (void)argv;
    nmp_fill(&fill);
    nmp_wait(NMP_VECTOR, 0);
    for (int i = 0; i < 3; i++)
        sum += data[i];
    nmp_puts("tile ");
    nmp_puts(tile[63] == -3 ? "filled\n" : "wrong\n");
    sum += (int)(wide / 1000000000 / 3 / argc); /* 333 */
    nmp_puts(nmp_cycles() > 100 && nmp_cores() == 3 ? "no newline" : "wrong");
    return sum;
}
"""

INSTRUCTION_TEXT = "\n".join(
    [
        '#include "nmp.h"',
        "__attribute__((noinline, used)) void all(void *p, uint32_t a, uint32_t b)\n{",
        *(
            {
                "DESCRIPTOR": f"    {one.mnemonic.replace('.', '_')}(p);",
                "SYNC": f"    {one.mnemonic.replace('.', '_')}(a, b);",
                "WAIT": f"    {one.mnemonic.replace('.', '_')}(NMP_VECTOR, 5);",
                "NONE": f"    {one.mnemonic.replace('.', '_')}();",
            }[one.format.name]
            for one in CUSTOM
        ),
        "}\nint main(void) { all(0, 1, 2); return 0; }\n",
    ]
)


def run(program: object, engine: str = "compiled", cores: int = 3) -> RunReport:
    return Device(make_device_config({"cores_count": cores}), engine).run(program, {})


def text_of(report: RunReport, core: int = 0) -> str:
    return "".join(line.text for line in report.console if line.core == core)


@pytest.mark.parametrize("name", GENERATED)
def test_the_files_of_the_kit_are_generated(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == render_file(name), "run `python -m nmpsim.ckit.generate`"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_instructions_have_the_words_of_the_table(compile_c: Compile, compiler: str) -> None:
    program = compile_c(INSTRUCTION_TEXT, compiler)
    start = program.symbols["all"] - program.image_base
    words = program.image[start : start + program.symbol_sizes["all"]].view("<u4").tolist()
    custom = [decode(word) for word in words if word & 0x7F == CUSTOM[0].match & 0x7F]
    assert [one.instruction for one in custom] == CUSTOM
    operands = {one.instruction.mnemonic: one.operands for one in custom}
    assert operands["nmp.wait"] == {"unit": 3, "outstanding": 5}
    assert all(operands["nmp.barrier"].values())


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_program_gives_the_same_report_on_both_engines(compile_c: Compile, compiler: str) -> None:
    program = compile_c(PROGRAM, compiler)
    reports = [run(program, engine) for engine in ENGINES]
    for report in reports:
        assert (report.trap, report.contract.status) == (None, "checked")
        assert report.exit_status == 321 + 333
        assert text_of(report) == "tile filled\nno newline"
    first, second = reports
    assert (first.cycles, first.console) == (second.cycles, second.console)
    assert [one.core_cycles for one in first.layers] == [one.core_cycles for one in second.layers]


def test_all_cores_can_call_main(compile_c: Compile) -> None:
    """Each core has its own stack and thread-local variables; a status other than 0 ends it."""
    text = """
#include "nmp.h"
static _Thread_local int mine = 5;
int main(void)
{
    mine += (int)nmp_hartid();
    nmp_putc((char)('0' + mine));
    return STATUS;
}
"""
    program = compile_c(text, "gcc", "none", True, "-DSTATUS=0")
    report = run(program)
    assert [text_of(report, core) for core in range(3)] == ["5", "6", "7"]
    assert (report.exit_status, report.contract.status) == (0, "checked")
    assert run(compile_c(text, "gcc", "none", True, "-DSTATUS=mine")).exit_status in (5, 6, 7)


def test_a_stack_overflow_traps(compile_c: Compile) -> None:
    text = """
static int deep(int n)
{
    volatile char area[512];
    area[n & 511] = 1;
    return n ? deep(n - 1) + area[0] : 0;
}
int main(void) { return deep(1000); }
"""
    report = run(compile_c(text))
    assert report.exit_status is None
    assert report.trap is not None
    assert "store fault" in report.trap.message


@pytest.mark.parametrize("compiler", COMPILERS)
def test_programs_print_with_picolibc(compile_c: Compile, compiler: str) -> None:
    if not Path("/usr/lib/picolibc/riscv64-unknown-elf").exists():
        pytest.skip("picolibc is not installed")
    text = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
    char *heap = malloc(20);
    strcpy(heap, "text");
    printf("%s %5d %lld\\n", heap, -42, 1LL << 40);
    exit(6);
}
"""
    report = run(compile_c(text, compiler, "picolibc"))
    assert (text_of(report), report.exit_status) == ("text   -42 1099511627776\n", 6)
    assert report.contract.status == "checked"


def test_the_command_prints_flags(tmp_path: Path) -> None:
    device = tmp_path / "d.toml"
    device.write_text("[scratchpad]\nbytes = 65536\n", encoding="utf-8")
    words = ["c-flags", "--libc", "none", "--device", str(device), "--stack", "4096"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    flags = done.stdout.split()
    assert "-Wl,--defsym=__nmp_scratchpad_bytes=65536" in flags
    assert "-Wl,--defsym=__stack_size=4096" in flags
    assert f"-T{FOLDER / 'nmp.ld'}" in flags
    compiled = CliRunner().invoke(app, ["c-flags", "--libc", "none", "--compile"]).stdout
    assert "crt0.S" not in compiled
    assert f"-I{FOLDER}" in compiled


def test_the_kit_can_be_copied_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    refused = CliRunner().invoke(app, ["c-flags", "--copy-to", str(folder)])
    assert "a space, at which shells split" in str(refused.exception) + refused.output
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["c-flags", "--libc", "none", "--copy-to", "kit"])
    assert done.exit_code == 0, done.output
    assert "-Ikit" in done.stdout.split()
    assert {*GENERATED, "nmp_stdio.c"} <= {path.name for path in (folder / "kit").iterdir()}


def test_impossible_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="the stack is larger than the scratchpad"):
        make_flags(KitOptions(stack_bytes=1 << 30), default_device())
    monkeypatch.setenv("PATH", "")
    assert shutil.which(GCC) is None
    with pytest.raises(UserError, match="picolibc is not installed"):
        make_flags(KitOptions(library="picolibc"), default_device())
    assert "-ffreestanding" in make_flags(KitOptions(), default_device())


LINKED = r"""
#include "nmp.h"

int8_t x[2][8];
int16_t y[16];

int main(void)
{
    for (int i = 0; i < 16; i++)
        y[i] = 0;
    nmp_barrier(0, 1);
    for (int i = 0; i < 16; i++)
        y[i] += 3 * x[i / 8][i % 8];
    nmp_barrier(1, 1);
    return 0;
}
"""
TENSORS = ["--input", "x:i8[2x8]", "--output", "y:i16[16]@0.5,0"]


REPEATED = r"""
#include "nmp.h"

static volatile int8_t data[64] = {'a'}, zero[64];

int main(void)
{
    nmp_putc(data[0]++);
    nmp_putc('0' + zero[0]++);
    nmp_puts("\n");
    return 0;
}
"""


def test_a_linked_program_has_tensors_and_layers(compile_c: Compile, tmp_path: Path) -> None:
    program, bundle = compile_c(LINKED), tmp_path / "net.bin"
    words = ["link", program.path, *TENSORS, "--layer", "clear:y", "--layer", "scale:y"]
    done = CliRunner().invoke(app, [*words, "-o", str(bundle)])
    assert done.exit_code == 0, done.output
    linked = read_bundle(bundle)
    assert linked.symbols == program.symbols
    values = np.arange(-8, 8, dtype=np.int8).reshape(2, 8)
    reports = [Device(default_device(), engine).run(linked, {"x": values}) for engine in ENGINES]
    for report in reports:
        assert (report.trap, report.exit_status, report.contract.status) == (None, 0, "checked")
        np.testing.assert_array_equal(report.outputs["y"], 3 * values.reshape(16))
        assert [layer.name for layer in report.layers] == ["clear", "scale"]
        assert all(layer.cycles > 100 for layer in report.layers)
    first, second = reports
    assert [one.cycles for one in first.layers] == [one.cycles for one in second.layers]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--input", "x:i9[4]"], "the tensor of --input is invalid"),
        (["--input", "x:i8[2x9]"], "too small for the tensor"),
        (["--input", "xx:i8[4]"], "has no variable"),
        (["--output", "y:i16[16]@half,0"], "the scale is not a number"),
        (["--layer", "a:z"], "the layer of --layer is invalid"),
        (["--input", "main:i8[4]"], "outside its memory"),
    ],
)
def test_impossible_tensors_and_layers_are_refused(
    compile_c: Compile, tmp_path: Path, words: list[str], text: str
) -> None:
    out = tmp_path / "net.bin"
    done = CliRunner().invoke(app, ["link", compile_c(LINKED).path, *words, "-o", str(out)])
    assert text in str(done.exception) + done.output
    assert not out.exists()


def test_each_run_of_a_program_finds_the_initial_data(compile_c: Compile) -> None:
    bundle = compile_c(REPEATED)
    for engine in ENGINES:
        device = Device(default_device(), engine)
        reports = [device.run(bundle, {}) for _ in range(5)]
        assert [report.console for report in reports] == [reports[0].console] * 5
        repeated = device.run(bundle, {}, repeat=4)
        assert (repeated.notes, repeated.console) == ((), reports[0].console)
