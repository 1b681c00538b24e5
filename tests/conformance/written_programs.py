"""LIR programs written for recorded vectors, as files that a user would have: text, constants,
exact scales. Nothing of nmpsim is used to write them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from tiers import tiling

import nmpsim
from nmpsim.report.data import RunReport

Array = np.ndarray[Any, Any]
ELEMS = {"int8": "i8", "int16": "i16", "int32": "i32", "float32": "float"}
BYTES = {"i8": 1, "i16": 2, "i32": 4, "float": 4, "index32": 4}


@attrs.frozen
class Kind:
    """Type of a tensor; ``scale`` is None if it is not quantized."""

    elem: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero: int = 0

    @property
    def nbytes(self) -> int:
        return BYTES[self.elem] * int(np.prod(self.shape))

    def text(self) -> str:
        dims = " x ".join(map(str, self.shape))
        if self.scale is None:
            return f"{self.elem}<{dims}>"
        limit = 1 << (int(self.elem[1:]) - 1)
        low, high = (self.scale * (q - self.zero) for q in (-limit, limit - 1))
        return f"{self.elem}[S:{self.scale:.9f} O:{self.zero}][{low:.3f},{high:.3f}]<{dims}>"


def make_kind(values: Array, scale: Any = None, zero: Any = 0) -> Kind:
    """Return the type of these values."""
    exact = None if scale is None else float(np.float32(scale))
    return Kind(ELEMS[values.dtype.name], values.shape, exact, int(zero))


class Program:
    """Program under construction, whose names are given in order."""

    def __init__(self) -> None:
        self._weights: list[Kind] = []
        self._declared: list[str] = []
        self._code: list[str] = []
        self._constants: dict[str, Array] = {}
        self._kinds: dict[str, Kind] = {}
        self.inputs: dict[str, Array] = {}
        self.keys: dict[str, str] = {}
        """Result -> the key of the layer that wrote it."""

    def constant(
        self, values: Array, scale: Any = None, zero: Any = 0, elem: str | None = None
    ) -> str:
        kind = make_kind(values, scale, zero)
        kind = kind if elem is None else attrs.evolve(kind, elem=elem)
        name = self._weight("constant", kind, "const")
        self._constants[name] = values
        return name

    def input(self, values: Array, scale: Any = None, zero: Any = 0) -> str:
        name = self._weight("input", make_kind(values, scale, zero), "mutable")
        self.inputs[name] = values
        return name

    def output(self, kind: Kind) -> str:
        return self._weight("output", kind, "mutable")

    def buffer(self, kind: Kind) -> str:
        name = self._named("buffer", kind)
        self._line(name, f"allocactivation  {{ Ty: {kind.text()}}}")
        return name

    def view(self, source: str, shape: tuple[int, ...]) -> str:
        """Add a view of the same elements in another shape."""
        kind = attrs.evolve(self._kinds[source], shape=shape)
        offsets = [0] * len(self._kinds[source].shape)
        name = self._named("view", kind)
        self._line(name, f"tensorview @in %{source} {{ Ty: {kind.text()}, Offsets: {offsets}}}")
        return name

    def emit(
        self, opcode: str, result: str, *sources: str, also: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """Add an instruction and return its result; ``also`` are further results, printed last."""
        name, number = f"{opcode}__{len(self._code)}", len(self._code)
        written = (
            f"@out %{result}",
            *(f"@in %{s}" for s in sources),
            *(f"@out %{a}" for a in also),
        )
        operands = ", ".join(written)
        pairs = ", ".join(f"{key}: {_text(value)}" for key, value in attributes.items())
        self._line(name, f"{opcode} {operands}" + (f" {{ {pairs}}}" if pairs else ""))
        self.keys[result] = f"{number:04d}:{name}"
        return result

    def write(self, folder: Path) -> Path:
        """Write the text, the constants and the scales, and return the path of the text."""
        path = folder / "written.lir.txt"
        size = sum(kind.nbytes for kind in self._weights)
        body = ["function written", "declare {", *self._declared, "", f"  ; size = {size} bytes"]
        path.write_text("\n".join([*body, "}", "", "code {", *self._code, "}", ""]))
        np.savez(folder / "written.npz", **self._constants)
        scales = {
            f"const/{name}": {"scale": kind.scale, "offset": kind.zero}
            for name, kind in self._kinds.items()
            if kind.scale is not None
        }
        (folder / "written.tensors.json").write_text(json.dumps(scales))
        return path

    def _weight(self, stem: str, kind: Kind, access: str) -> str:
        name = self._named(stem, kind)
        self._weights.append(kind)
        declared = f"  %{name} = WeightVar {kind.text()} {access} // size: {kind.nbytes}"
        self._declared.append(declared)
        return name

    def _named(self, stem: str, kind: Kind) -> str:
        name = f"{stem}__{len(self._kinds)}"
        self._kinds[name] = kind
        return name

    def _line(self, name: str, text: str) -> None:
        self._code.append(f"  {len(self._code)} %{name} = {text}")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6e}"
    if isinstance(value, str):
        return value
    if np.ndim(value):
        return f"[{', '.join(_text(v) for v in np.asarray(value).tolist())}]"
    return str(int(value))


@cache
def device(engine: str) -> nmpsim.Device:
    """Return a device with four cores, so that layers are sliced."""
    return nmpsim.Device(attrs.evolve(nmpsim.default_device(), cores_count=4), engine)


def run(program: Program, folder: Path, engine: str = "compiled", **options: Any) -> RunReport:
    """Write, compile and run a program and save all layers; ``options`` go to the compiler."""
    path = program.write(folder)
    target = device(engine)
    compiled = nmpsim.compile(
        path, folder / "written.npz", device=target.config, **{**tiling(), **options}
    )
    assert compiled.warnings == ()
    nmpsim.save(compiled, folder / "written.bin")
    bundle = nmpsim.load(folder / "written.bin")
    report = target.run(bundle, program.inputs, save_layers=True)
    assert report.trap is None
    return report
