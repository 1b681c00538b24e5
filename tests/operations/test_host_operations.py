"""Operations that only the host does, against plain loops written from Glow's Interpreter.

Some that the device does are tried likewise.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import CASES, ON_THE_DEVICE, Case
from toy_rows import add_host_opcode

from nmpsim.interpreter import execute_exact, execute_real
from nmpsim.lir.opcodes import HOST_OPCODES

SEEDS = range(12)
ALL = {**CASES, **ON_THE_DEVICE}


def make_case(name: str, seed: int) -> Case:
    return ALL[name](np.random.default_rng([seed, *name.encode()]))


def assert_same(case: Case, found: dict) -> None:
    for role, expected in zip(case.it.results, case.expected, strict=True):
        got = found[role]
        wanted = np.asarray(expected).astype(got.dtype).reshape(got.shape)
        if case.near:
            np.testing.assert_allclose(got, wanted, rtol=0, atol=case.near)
        elif case.units:
            np.testing.assert_array_max_ulp(got, wanted, maxulp=case.units)
        else:
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ALL)
def test_host_operations_equal_plain_loops(name: str) -> None:
    for seed in SEEDS:
        case = make_case(name, seed)
        execution = execute_exact(case.it.module(), case.it.inputs())
        for _ in execution:
            pass
        assert_same(case, {role: execution.copy_values(role) for role in case.it.results})


@pytest.mark.parametrize("name", ALL)
def test_operations_run_from_text_to_report(name: str) -> None:
    case = make_case(name, 100)
    bundle = case.it.bundle()
    (layer,) = [one for one in bundle.metadata.layers if one.op == case.it.opcode]
    assert layer.placement == ("device" if name in ON_THE_DEVICE else "host")
    assert bool(layer.reason) == (layer.placement == "host")
    assert_same(case, case.it.run())


@pytest.mark.parametrize("name", CASES)
def test_float32_and_real_results_agree(name: str) -> None:
    """Float programs are calibrated in float32, and compared with the same in real numbers."""
    for seed in SEEDS:
        case = make_case(name, seed)
        if any(type_.quant and type_.quant.scale for type_ in case.it.types):
            continue
        found = {}
        for real in (np.float32, np.float64):
            execution = execute_real(case.it.module(), case.it.inputs(), real=real)
            for _ in execution:
                pass
            found[real] = {role: execution.copy_values(role) for role in case.it.results}
        assert_same(case, found[np.float32])
        for role, real in found[np.float64].items():
            np.testing.assert_allclose(real, found[np.float32][role], rtol=1e-4, atol=1e-3)


def without_a_case() -> set[str]:
    rows = HOST_OPCODES.keys() - {"nonmaxsuppression"}
    return {name.split()[0] for name in CASES} ^ {*rows, "avgpool"}


def test_every_operation_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_a_case() == set()
    add_host_opcode(monkeypatch)
    assert without_a_case() == {"toy"}
