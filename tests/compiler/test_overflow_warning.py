"""The warning about average pools whose sums saturate before they are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lir_draft import Draft, int8

from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.core.device import Device


def pool(size: int, count_pads: int = 0, scale: float = 0.1) -> Draft:
    draft = Draft()
    source = draft.input(int8((1, size, size, 1), 0.1, -128))
    result = draft.output(int8((1, 1, 1, 1), scale, -128))
    window: dict[str, Any] = {"Kernels": (size, size), "Strides": (1, 1), "Pads": (0,) * 4}
    draft.emit("avgpool", result, source, **window, CountIncludePads=count_pads)
    return draft


def compile_and_run(draft: Draft, numerics: str = "glow-int") -> tuple[list[str], Any]:
    found: list[str] = []
    device = default_device()
    file = compile_module(draft.module(), device, numerics=numerics, on_warning=found.append)
    ((name, kind),) = draft.inputs.items()
    image = np.full(kind.shape, 127, np.int8)
    report = Device(device, "reference").run(parse_bundle(file), {name: image})
    stages = {one.stage for layer in report.layers for one in layer.saturation}
    return found, stages


@pytest.mark.parametrize("size", [182, 256])
@pytest.mark.parametrize("numerics", ["glow-int", "nmp"])
def test_a_large_window_gives_a_warning(size: int, numerics: str) -> None:
    (warning,), stages = compile_and_run(pool(size, scale=0.11), numerics)
    assert f"sums of {size * size:,} values can reach {255 * size * size:,}" in warning
    assert "%avgpool__3" in warning
    assert stages == {"rescale"}


@pytest.mark.parametrize(
    ("draft", "numerics"),
    [
        (pool(64, scale=0.11), "glow-int"),  # fits 32 bits
        (pool(182), "glow-int"),  # a factor of one multiplies by one
        (pool(256, count_pads=1, scale=0.11), "glow-int"),  # the factor includes the division
        (pool(256, scale=0.11), "glow-float"),
        (pool(1, scale=3e-10), "glow-int"),  # saturates, and its average exceeds Int8 anyway
    ],
)
def test_other_windows_give_no_warning(draft: Draft, numerics: str) -> None:
    assert compile_and_run(draft, numerics)[0] == []
