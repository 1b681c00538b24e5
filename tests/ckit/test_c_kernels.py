"""Layers that C functions compute inside a network, on both engines and several cores."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from tiers import each_value

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.ckit.flags import GCC
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.report.data import RunReport

Compile = Callable[..., Bundle]
EXAMPLES = Path(__file__).parents[2] / "programs" / "c"
ENGINES = ("reference", "compiled")
SOURCE = "".join(
    (EXAMPLES / name).read_text(encoding="utf-8") for name in ("depthwise.c", "relu.c")
)
COPY = """
#include "nmp.h"
NMP_SCRATCHPAD int8_t tile[1024];
int32_t calls = 5;
NMP_KERNEL void kernel(const nmp_layer_t *layer, uint32_t core, uint32_t cores)
{
    const nmp_tensor_t *y = layer->tensors, *x = y + 1;
    uint32_t bytes = y->size_1 * y->stride_1;
    nmp_load_t load = {.dram = x->data, .spm = tile, .run_bytes = 320, .count_x = 1, .count_y = 1};
    nmp_store_t store = {.dram = y->data, .spm = tile, .run_bytes = 320};
    store.count_x = store.count_y = 1;
    (void)bytes; (void)cores; (void)&load; (void)&store; load.layer = store.layer = layer->number;
    if (core == 0) { BODY }
}
"""


def load_network_writer() -> Any:
    """Return the module of the examples that writes their network."""
    spec = importlib.util.spec_from_file_location("c_network", EXAMPLES / "network.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of the network of each element type."""
    writer, folders = load_network_writer(), {}
    for elem in writer.BITS:
        folders[elem] = tmp_path_factory.mktemp(elem)
        writer.write_network(folders[elem], elem, channels=20, size=4)
    return folders


def build(folder: Path, cores: int = 3, **options: Any) -> Bundle:
    """Compile the network of a folder for some cores."""
    device = attrs.evolve(default_device(), cores_count=cores)
    files = folder / "net.lir.txt", folder / "net.npz"
    options = {"fuse": False} | options
    return parse_bundle(nmpsim.compile(*files, device=device, **options).image)


def run(folder: Path, bundle: Bundle, engine: str = "reference") -> RunReport:
    """Run a bundle on the input of a folder."""
    device = attrs.evolve(default_device(), cores_count=bundle.metadata.device["cores_count"])
    return Device(device, engine).run(bundle, {"x": np.load(folder / "x.npy")})


@pytest.mark.parametrize(
    ("elem", "compiler", "cores", "tiling"),
    each_value(
        [
            ("i8", "gcc", 3, "layer"),
            ("i16", "clang", 1, "chain"),
            ("i8", "clang", 3, "chain"),
            ("i16", "gcc", 32, "layer"),
        ]
    ),
)
def test_kernels_equal_the_compiler(
    compile_c: Compile, networks: dict[str, Path], elem: str, compiler: str, cores: int, tiling: str
) -> None:
    folder, elf = networks[elem], compile_c(SOURCE, compiler).path
    kernels = {"depthwise": f"{elf}:depthwise", "activation": elf}
    expected = run(folder, build(folder, cores))
    bundle = build(folder, cores, kernels=kernels, tiling=tiling)
    reports = [run(folder, bundle, engine) for engine in ENGINES]
    for report in reports:
        assert (report.trap, report.contract.status) == (None, "checked")
        np.testing.assert_array_equal(report.outputs["y"], expected.outputs["y"])
        assert report.layers[0].saturated == expected.layers[0].saturated
        assert [one.operation for one in report.layers] == ["depthwise (C)", "kernel (C)"]
        assert report.layers[1].bytes_written == 0 < report.layers[0].bytes_written
    first, second = reports
    assert [one.cycles for one in first.layers] == [one.cycles for one in second.layers]


def test_a_kernel_computes_a_fused_layer(compile_c: Compile, networks: dict[str, Path]) -> None:
    folder, elf = networks["i8"], compile_c(SOURCE).path
    expected = run(folder, build(folder, fuse=True))
    bundle = build(folder, fuse=True, kernels={"activation": f"{elf}:depthwise"})
    report = run(folder, bundle)
    np.testing.assert_array_equal(report.outputs["y"], expected.outputs["y"])
    assert report.layers[0].saturated == expected.layers[0].saturated


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "text", "status"),
    [
        ("__builtin_trap();", "breakpoint", "checked"),
        ("nmp_load(&load); nmp_store(&store);", "missing synchronization", "violated"),
        ("((volatile int8_t *)y->data)[1 << 24] = 1;", "store fault", "checked"),
        ("((volatile int8_t *)layer)[0] = 1;", "store fault", "checked"),
        (
            "nmp_load(&load); nmp_wait(NMP_LOAD, 0); nmp_store(&store); nmp_wait(NMP_STORE, 0);",
            "",
            "checked",
        ),
    ],
)
def test_faulty_kernels_are_reported(
    compile_c: Compile, networks: dict[str, Path], engine: str, body: str, text: str, status: str
) -> None:
    elf = compile_c(COPY.replace("BODY", body), "gcc", "none", False, "-g").path
    report = run(networks["i8"], build(networks["i8"], kernels={"activation": elf}), engine)
    assert text in ("" if report.trap is None else report.trap.message)
    assert (report.trap is None, report.contract.status) == (not text, status)


def test_a_kernel_that_writes_beyond_its_output_is_a_difference(
    compile_c: Compile, networks: dict[str, Path]
) -> None:
    """The bytes after the result of the first layer belong to another tensor."""
    body = "for (uint32_t i = 0; i < 4 * bytes; i++) ((int8_t *)y->data)[i] = 1;"
    folder, elf = networks["i8"], compile_c(COPY.replace("BODY", body)).path
    expected, report = (
        run(folder, build(folder, kernels=kernels)) for kernels in ({}, {"depthwise": elf})
    )
    assert not np.array_equal(expected.outputs["y"], report.outputs["y"])


def test_data_of_kernels_is_restored_in_each_run(
    compile_c: Compile, networks: dict[str, Path]
) -> None:
    body = "*(volatile int8_t *)y->data = (int8_t)calls++;"
    folder, elf = networks["i8"], compile_c(COPY.replace("BODY", body)).path
    bundle = build(folder, kernels={"activation": elf})
    device = Device(attrs.evolve(default_device(), cores_count=3))
    values = {"x": np.load(folder / "x.npy")}
    found = [device.run(bundle, values).outputs["y"].flat[0] for _ in range(3)]
    assert found == [5, 5, 5]


@pytest.mark.parametrize(
    ("kernels", "options", "text"),
    [
        ({"other": "ELF"}, {}, "no layer is named 'other'"),
        ({"depthwise": "ELF:other"}, {}, "no function other"),
        ({"depthwise": "ELF"}, {"fuse": True}, "fused into the layer activation"),
        ({"depthwise": "ELF", "0": "ELF"}, {}, "has two kernels"),
        ({"depthwise": "ELF", "activation": "other.elf"}, {}, "in several files"),
        ({"depthwise": "PROGRAM"}, {}, "not linked as a kernel"),
        ({"depthwise": "/bin/sh"}, {}, "not a program for the device"),
        ({"depthwise": "ELF"}, {"images_per_core": 1}, "one image on all cores"),
        ({"depthwise": "ELF"}, {"scratchpad": 4096}, "do not fit the scratchpad"),
    ],
)
def test_impossible_kernels_are_refused(
    compile_c: Compile,
    networks: dict[str, Path],
    kernels: dict[str, str],
    options: dict[str, Any],
    text: str,
) -> None:
    elf = compile_c(SOURCE).path
    program = compile_c('#include "nmp.h"\nint main(void) { return 0; }').path
    named = {
        layer: file.replace("ELF", elf).replace("PROGRAM", program)
        for layer, file in kernels.items()
    }
    device = attrs.evolve(
        default_device(),
        scratchpad_bytes=options.pop("scratchpad", default_device().scratchpad_bytes),
    )
    files = networks["i8"] / "net.lir.txt", networks["i8"] / "net.npz"
    with pytest.raises(UserError, match=text):
        nmpsim.compile(*files, device=device, kernels=named, **({"fuse": False} | options))


def test_the_debugger_knows_the_lines_of_a_kernel(
    compile_c: Compile, networks: dict[str, Path], tmp_path: Path
) -> None:
    from nmpsim.cli.app import app

    body = "nmp_load(&load);\n nmp_wait(NMP_LOAD, 0);"
    program = compile_c(COPY.replace("BODY", body), "gcc", "none", False, "-g")
    bundle = build(networks["i8"], kernels={"activation": program.path})
    (tmp_path / "net.bin").write_bytes(bundle.file)
    line = next(i for i, text in enumerate(COPY.splitlines(), 1) if "BODY" in text)
    source = f"{Path(program.path).stem}.c"
    words = ["debug", str(tmp_path / "net.bin"), "--input", str(networks["i8"] / "x.npy")]
    for command in (f"break {source}:{line}", "continue", "backtrace"):
        words += ["-c", command]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"kernel ({source}:{line})" in done.output
    assert "segment_0.core_0" in done.output


@pytest.mark.slow
def test_the_commands_of_the_examples_work(tmp_path: Path) -> None:
    if shutil.which(GCC) is None:
        pytest.skip(f"{GCC} is not installed")
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    commands = "".join(part.split("```")[0] for part in text.split("```sh\n")[1:])
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    # The exit code of diff is 1, because the cycles differ.
    functions = """
        nmpsim() { "$PYTHON" -m nmpsim "$@" || [ "$1-$?" = diff-1 ]; }
        python() { "$PYTHON" "$@"; }
    """
    done = subprocess.run(
        ["bash", "-e", "-c", functions + commands],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all equal") == 2
