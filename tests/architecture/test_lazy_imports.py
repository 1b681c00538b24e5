"""Test that heavy packages are imported only when they are used, so that commands start fast."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmpsim import cli

PROGRAM = Path(__file__).parents[2] / "programs" / "assembly" / "dma_copy.s"
MODEL = Path(__file__).parents[1] / "fuzz" / "corpus" / "tflite" / "small-int8.tflite"
HEAVY = ("numpy", "numba", "rich", "cattrs", "elftools")
NOT_FOR_A_RUN = {
    "asyncio",
    "elftools",
    "email",
    "importlib.metadata",
    "jinja2",
    "jsonschema",
    "llvmlite",
    "logging",
    "matplotlib",
    "multiprocessing",
    "nmpsim.analysis",
    "nmpsim.bundle.assembly",
    "nmpsim.bundle.patch",
    "nmpsim.checking",
    "nmpsim.compiler",
    "nmpsim.core.compiled.engine",
    "nmpsim.core.termination",
    "nmpsim.core.layer_kernels",
    "nmpsim.debugger",
    "nmpsim.experiments",
    "nmpsim.frontends",
    "nmpsim.isa.assembly",
    "nmpsim.kernels.jit",
    "nmpsim.lir.parser",
    "nmpsim.lir.verify",
    "nmpsim.quantization",
    "numba",
    "numpy.ma",
    "numpy.random",
    "PIL",
    "rich.progress",
    "subprocess",
    "textual",
    "urllib.request",
    "zipfile",
}
"""Modules that a run of a bundle on an array does not need and must not wait for."""


NOT_FOR_A_SCRIPT = {
    "jinja2",
    "jsonschema",
    "matplotlib",
    "networkx",
    "nmpsim.analysis.hypotheses",
    "nmpsim.analysis.identify",
    "onnx",
    "rich.table",
}
"""Packages that neither the import of a TFLite model nor a short script of the debugger needs."""


def run_command(words: list[str]) -> str:
    return (
        f"from nmpsim.cli import main\nsys.argv = {words}\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code"
    )


def list_imports(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    [
        "import nmpsim",
        "from nmpsim.cli import main\n"
        "sys.argv = ['nmpsim', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass",
    ],
    ids=["import", "help"],
)
def test_nmpsim_imports_no_large_module(statement: str) -> None:
    imported = list_imports(statement)
    assert imported.isdisjoint(HEAVY)
    assert not [name for name in imported if name.startswith("nmpsim.cli.commands.")]


def test_importing_the_compiler_needs_no_numba() -> None:
    assert "numba" not in list_imports("import nmpsim.compiler.driver, nmpsim.lir, nmpsim.bundle")


def test_evaluation_imports_neither_compiler_nor_front_ends() -> None:
    imported = list_imports("import nmpsim.experiments, nmpsim.frontends")
    readers = {"nmpsim.frontends.onnx", "nmpsim.frontends.tflite", "nmpsim.lir.parser"}
    assert imported.isdisjoint({"nmpsim.compiler", *readers})


def test_a_run_needs_neither_the_compiler_nor_lint() -> None:
    imported = list_imports("import nmpsim\nnmpsim.load, nmpsim.Device, nmpsim.get_device")
    assert "nmpsim.core.device" in imported
    assert imported.isdisjoint({"nmpsim.compiler", "nmpsim.analysis", "nmpsim.quantization"})


def test_a_run_of_a_bundle_imports_only_necessary_modules(tmp_path: Path) -> None:
    from nmpsim.bundle.assembly import assemble
    from nmpsim.config import default_device

    bundle, image = tmp_path / "copy.bin", tmp_path / "image.npy"
    source = PROGRAM.read_text(encoding="utf-8")
    bundle.write_bytes(assemble(source, PROGRAM.name, default_device().settings()).build_bundle())
    np.save(image, np.zeros((6, 8, 2), np.int8))
    words = ["nmpsim", "run", str(bundle), "--input", str(image), "--engine", "reference"]
    imported = list_imports(run_command(words))
    assert "nmpsim.core.reference.engine" in imported
    assert imported & NOT_FOR_A_RUN == set()


def test_a_debugger_script_for_a_tflite_model_imports_no_template_engine(tmp_path: Path) -> None:
    image = tmp_path / "image.npy"
    np.save(image, np.zeros((1, 4, 4, 2), np.int8))
    words = ["nmpsim", "debug", str(MODEL), "--input", str(image), "--engine", "reference"]
    imported = list_imports(run_command([*words, "-c", "run", "-c", "where", "-c", "back"]))
    assert {"nmpsim.compiler", "nmpsim.debugger.commands.moving"} <= imported
    assert imported.isdisjoint(NOT_FOR_A_SCRIPT)


def test_idle_threads_of_numpy_release_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user says for how long they look for work."""
    monkeypatch.setattr(cli.gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(cli.atexit, "register", lambda _: None)
    monkeypatch.setattr("nmpsim.cli.interrupt.watch_interrupts", lambda: None)
    monkeypatch.setattr("nmpsim.cli.app.app.main", lambda: None)
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "26")
    cli.main()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "26"
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT")
    cli.main()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "20"


def test_every_public_name_exists() -> None:
    import nmpsim

    for name in nmpsim.__all__:
        assert getattr(nmpsim, name) is not None
    stub = Path(nmpsim.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    declared = re.findall(r"import (\w+) as \1\b|^(__version__): ", stub, re.MULTILINE)
    assert sorted(one or other for one, other in declared) == sorted(nmpsim.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nmpsim.nothing
