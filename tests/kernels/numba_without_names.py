"""Private names of Numba, and kernels whose results show whether a name is missing.

python numba_without_names.py MODULE...   # modules of numba_internals that lose all their names
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
INTERNALS = ROOT / "nmpsim" / "kernels" / "numba_internals"
MODULES = tuple(sorted(path.stem for path in INTERNALS.glob("[a-z]*.py")))
PACKAGE = "nmpsim.kernels.numba_internals"


def find_private_imports(path: Path) -> dict[str, str]:
    """Return a module's imports of undocumented parts of Numba: name -> module."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and is_private(node.module):
            found |= {alias.name: node.module for alias in node.names}
    return found


def is_private(module: str) -> bool:
    """Return whether a module of Numba is missing from its manual."""
    return module.startswith("numba.") and module != "numba.extending"


def list_private_names(module: str) -> list[tuple[str, str]]:
    """Return the modules, names and attributes of Numba that a module of numba_internals needs."""
    path = INTERNALS / f"{module}.py"
    imports = find_private_imports(path)
    names = [(where, name) for name, where in imports.items()]
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NEEDED":
            assert isinstance(node.value, ast.Tuple)
            for needed in node.value.elts:
                owner, _, attribute = ast.unparse(needed).partition(".")
                if owner in imports:
                    names.append((imports[owner], f"{owner}.{attribute}"))
                else:
                    raise AssertionError(owner)
    return names


@contextmanager
def without(module: str, name: str) -> Iterator[None]:
    """Remove a name from Numba in a ``with`` block."""
    owner: Any = importlib.import_module(module)
    *owners, name = name.split(".")
    for part in owners:
        owner = getattr(owner, part)
    if isinstance(owner, type):
        owner = next(base for base in owner.__mro__ if name in vars(base))
    value = vars(owner)[name]
    delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, value)


def import_again() -> Any:
    """Import the package numba_internals again and return it."""
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        if sys.modules[name] is not None:
            del sys.modules[name]
    return importlib.import_module(PACKAGE)


def run_sample_kernels() -> list[object]:
    """Return results of kernels of each type that nmpsim compiles."""
    import ctypes

    import numpy as np

    from nmpsim.kernels import jit
    from nmpsim.kernels.entries import AddressedKernel, CompiledEntry
    from nmpsim.kernels.microkernel import (
        initialize_packed_weights,
        initialize_workspace,
        products,
    )
    from nmpsim.kernels.microkernel_int16 import compute_products_int16
    from nmpsim.kernels.numba_internals import struct_pointer
    from nmpsim.kernels.operands import InputWindow
    from nmpsim.kernels.packed_weights import get_packed_weights_size
    from nmpsim.kernels.pointers import call
    from nmpsim.kernels.workspace_size import MAX_PIXELS
    from nmpsim.memory.pure import register_pure_functions

    register_pure_functions()

    PIXELS = 8  # noqa: N806  # compiled code takes it as a constant

    class Scaled(NamedTuple):
        values: Any
        factor: Any

    class Given(NamedTuple):
        window: Any

    class Buffers(NamedTuple):
        excess: Any
        workspace: Any
        packed: Any

    @jit.jit_inlined
    def longer(values: Any, others: Any) -> Any:
        return values if values.size > others.size else others

    @jit.jit
    def total(s: Any) -> Any:
        added = np.int64(0)
        for value in s.values:
            added += value * s.factor
        return added

    def half(value: Any) -> Any:
        return value >> 1

    jit.jit_pure(half)

    @jit.jit_allocating
    def copied(s: Any) -> Any:
        return s.values[::2].copy()

    @jit.jit_allocating
    def total_of_copy(s: Any) -> Any:
        return total(Scaled(copied(s).reshape((-1, 1))[:, 0], s.factor))

    def run(values: Any, others: Any, factor: Any, address: Any, out: Any) -> Any:
        s = struct_pointer(Scaled(longer(values, others), half(factor)))
        out[0], out[1], out[2] = total(s), total_of_copy(s), call(address, (factor, np.int64(2)))
        return out.size

    def difference(a: Any, b: Any) -> Any:
        return a - b

    def sums(given: Any, inputs: Any, offsets: Any, weights: Any, out: Any) -> Any:
        n, w = np.int64(0), struct_pointer(given.window)
        steps, pixels = np.int64(2), np.int64(4)
        compute_products_int16(inputs, n, offsets, w, steps, weights, n, pixels, out)
        return 0

    def windows(given: Any, inputs: Any, offsets: Any, weights: Any, out: Any, more: Any) -> Any:
        n, w = np.int64(0), struct_pointer(given.window)
        initialize_workspace(more.workspace)
        initialize_packed_weights(more.packed)
        made = out, more.excess, more.workspace, more.packed
        products(inputs, n, offsets, w, weights, n, PIXELS, *made)
        return 0

    rng = np.random.default_rng(5)
    compiled = AddressedKernel("kernel.difference", lambda: difference, 2)
    as_ctypes = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(compiled.address())
    values, found = np.arange(9, dtype=np.int64), np.zeros(3, np.int64)
    entry = CompiledEntry("entry.run", lambda: run)
    answers: list[object] = [entry(values, values[:4], 6, compiled.address(), found)]
    answers += [*found.tolist(), as_ctypes(7, 9)]
    weights = rng.integers(-(2**15), 2**15, 2 * 6 * 16).astype(np.int16)
    patches = rng.integers(-9000, 9000, 4 * 6).astype(np.int16)
    out = np.zeros((4, 32), np.int64)
    taken = Given(InputWindow(1, 0, 1, 0, 6))
    CompiledEntry("entry.sums", lambda: sums)(taken, patches, 12 * np.arange(4), weights, out)
    answers.append(out.tolist())
    inputs, coefficients = rng.integers(-128, 128, (2, 4096)).astype(np.int8)
    offsets = np.minimum(np.arange(MAX_PIXELS), PIXELS - 1)
    sums32, excess = np.zeros((MAX_PIXELS, 16), np.int32), np.zeros(MAX_PIXELS, np.int32)
    given = Given(InputWindow(2, 64, 2, 16, 8))
    more = Buffers(
        excess, np.empty(1 << 16, np.int64), np.empty(get_packed_weights_size(1, 32) + 1, np.int64)
    )
    at_entry = CompiledEntry("entry.windows", lambda: windows)
    at_entry(given, inputs, offsets, coefficients, sums32, more)
    answers.append(sums32[:PIXELS].tolist())
    return answers


if __name__ == "__main__":
    for module in sys.argv[1:]:
        sys.modules[f"{PACKAGE}.{module}"] = None  # type: ignore[assignment]  # cannot be imported
    assert sorted(import_again().MISSING) == sorted(sys.argv[1:])
    print(run_sample_kernels())
