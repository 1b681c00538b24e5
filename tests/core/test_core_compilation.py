"""Test the compiled engine without a compiler, and the reference engine alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device

HERE = Path(__file__).parent
SELECTION = [
    "test_core_integer.py",
    "test_core_control.py",
    "test_core_cycles.py",
    "test_core_random_mac.py",
    "test_core_random_profiles.py",
    "test_core_random_vector.py",
    "test_core_vector_events.py",
    "../kernels/test_microkernel_int16.py",
    "test_core_golden.py::test_fully_connected_and_matrix_product_equal_recorded_results",
    "test_core_golden.py::test_pools_equal_recorded_results",
]
NOT_COMPILED = {
    "nmpsim",
    "nmpsim.arrays",
    "nmpsim.atomic",
    "nmpsim.subprocesses",
    "nmpsim.config",
    "nmpsim.core.critical_path",
    "nmpsim.core.work",
    "nmpsim.diagnostics",
    "nmpsim.dram_presets",
    "nmpsim.energy",
    "nmpsim.energy.tables",
    "nmpsim.extras",
    "nmpsim.host_memory",
    "nmpsim.input_files",
    "nmpsim.records",
    "nmpsim.escape",
}
"""What the engine imports from outside its own sources; compiled code takes nothing from there."""
WHOLE_LAYERS = "nmpsim.core.layer_kernels"
"""Plain Python, which makes instructions for what is compiled."""


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="this is the inner run")
def test_kernels_give_the_same_uncompiled() -> None:
    """As plain Python, NumPy's integers have the widths that they have when compiled."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, *(str(HERE / name) for name in SELECTION)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_the_digest_of_the_cache_covers_what_is_compiled() -> None:
    code = (
        "import sys, nmpsim.core.compiled.engine, nmpsim.core.compiled.contract_entry\n"
        "import nmpsim.core.compiled.event_loop, nmpsim.core.compiled.replay_loop\n"
        "from nmpsim.kernels.sources import list_compiled_sources\n"
        "known = {str(p) for p in list_compiled_sources()}\n"
        "names = [n for n, m in sys.modules.items() if n.split('.')[0] == 'nmpsim'\n"
        "         and m.__file__ not in known]\n"
        "print(*names)"
    )
    packages = {"nmpsim.core"}
    found = set(run_python(code).split()) - packages
    assert {name for name in found if not name.startswith(WHOLE_LAYERS)} <= NOT_COMPILED


def test_the_reference_engine_needs_no_compiler() -> None:
    code = (
        "import sys, nmpsim.core.reference.engine\n"
        "print(*(n for n in sys.modules if n.split('.')[0] in ('numba', 'nmpsim')))"
    )
    modules = set(run_python(code).split())
    assert "numba" not in modules
    assert not [m for m in modules if m.startswith("nmpsim.core.compiled")]
    assert {m for m in modules if m.startswith("nmpsim.kernels.")} == {
        "nmpsim.kernels.saturation_stages"
    }


def test_a_run_on_the_reference_engine_needs_no_compiler(tmp_path: Path) -> None:
    """Its contract is checked all the same, and what small work runs on is this engine."""
    bundle = tmp_path / "halt.bin"
    bundle.write_bytes(
        assemble("_start: nmp.halt", "halt.s", default_device().settings()).build_bundle()
    )
    code = (
        "import sys, nmpsim\n"
        f"bundle = nmpsim.load({str(bundle)!r})\n"
        "for engine in ('reference', 'auto'):\n"
        "    report = nmpsim.Device(engine=engine).run(bundle, {})\n"
        "    print(report.engine, report.contract.status)\n"
        "print(*(n for n in sys.modules if n in ('numba', 'llvmlite', 'nmpsim.frontends')))"
    )
    assert run_python(code) == "reference proved\nreference proved\n\n"
