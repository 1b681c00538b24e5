"""Programs with formulas of their own: both engines compute them, value by value."""

from __future__ import annotations

import math
from fractions import Fraction

import attrs
import numpy as np
import pytest
from core_jobs import JOBS, MOVES
from core_layers import unary
from core_machines import assert_same, device, from_descriptors, run, run_both
from core_tensors import Layout, scale
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.isa.profiles import NUMERICS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS

COMPUTED = [name for name in JOBS if name not in MOVES]


def quote(text: str) -> str:
    return f"'''\n{text}'''"


def restate(base: str, ending: str) -> bytes:
    """Return a file that states every formula of a base again, with an ending of the result."""
    lines = ['name = "again"', f'base = "{base}"']
    for profile in next(row.profiles for row in NUMERICS if row.name == base):
        lines.append(f"[{profile}]")
        for kind, stated in FORMULAS[profile].items():
            if (profile, kind) == ("onnx", "average"):
                continue
            texts = stated if isinstance(stated, dict) else dict.fromkeys(ELEMENTS, stated)
            for element, text in texts.items():
                *steps, last = text.strip().splitlines()
                changed = "\n".join([*steps, ending.format(last)])
                lines.append(f"{kind}.{element} = {quote(changed)}")
    return "\n".join(lines).encode()


@pytest.mark.parametrize("base", [row.name for row in NUMERICS])
@given(st.data(), st.sampled_from(COMPUTED))
@examples(25)
def test_formulas_stated_again_compute_the_same(
    base: str, data: st.DataObject, instruction: str
) -> None:
    layout = Layout(0)
    program = from_descriptors(
        *data.draw(JOBS[instruction](layout)),
        scratchpad=layout.contents(),
        config=device(),
        layer_channels=(7, 16, 1),
    )
    own = attrs.evolve(program, formulas=restate(base, "({}) + 0"))
    with np.errstate(over="ignore", invalid="ignore"):
        (outcome, standard), (own_outcome, changed) = (
            run("reference", program),
            run("reference", own),
        )
    assert outcome == own_outcome
    assert_same(standard, changed._replace(formulas=standard.formulas))


@pytest.mark.parametrize("base", ["glow-int", "q31", "float-onednn"])
@given(st.data(), st.sampled_from(COMPUTED))
@examples(25)
def test_both_engines_count_what_formulas_saturate(
    base: str, data: st.DataObject, instruction: str
) -> None:
    layout = Layout(0)
    program = from_descriptors(
        *data.draw(JOBS[instruction](layout)),
        scratchpad=layout.contents(),
        config=device(),
        layer_channels=(7, 16, 1),
        formulas=restate(base, "saturate({}, 12) + 1"),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        run_both(program)


HALF_UP = b"""
name = "half-up"
base = "q31"
[functions]
fixed_point = '''
shifted = saturate(hold(x, (1 << 62) >> pre) << pre, 32)
product = hold(shifted * mul + (1 << 30) >> 31, (1 << 31) - 1)
product + (1 << post >> 1) >> post
'''
"""


@pytest.mark.parametrize(("pre", "mul", "post"), [
    (0, 1 << 30, 0), (3, 1 << 30, 4), (2, 1_518_500_250, 3), (0, (1 << 31) - 1, 2),
])  # fmt: skip
def test_a_rescale_that_rounds_halves_up_has_the_results_of_fractions(
    pre: int, mul: int, post: int
) -> None:
    x = np.arange(-128, 128, dtype=np.int8)
    words = {"profile": "q31", "out_offset": 3, "in_offset": -5, **scale("out", pre, mul, post)}
    half = Fraction(1, 2)

    def compute(value: int) -> int:
        product = math.floor(Fraction((value + 5) << pre) * mul / 2**31 + half)
        return min(max(math.floor(Fraction(product, 1 << post) + half) + 3, -128), 127)

    assert unary(x, words, HALF_UP).tolist() == list(map(compute, x.tolist()))


@pytest.mark.parametrize("name", ["name", "value", "formula", "exact"])
def test_a_step_may_have_any_name(name: str) -> None:
    text = f'name = "named"\nbase = "q31"\n[q31]\nrescale = """\n{name} = x + 1\n'
    text += f'max({name}, {name} - 1) + out_offset\n"""\n'
    x = np.arange(-8, 8, dtype=np.int8)
    words = {"profile": "q31", "out_offset": 3, "in_offset": -5, **scale("out", 0, 1, 0)}
    assert unary(x, words, text.encode()).tolist() == [value + 9 for value in range(-8, 8)]
