"""The arithmetic told is the arithmetic done, for every instruction, profile and element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pytest
from core_jobs import JOBS, MOVES
from core_machines import IMAGE_BASE, device, from_descriptors, run
from core_profiles import values
from core_strategies import SEED
from core_tensors import Job, Layout
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.core.state import Machine
from nmpsim.debugger.arithmetic import OutputElement, ResultTrace, Term, list_terms, trace_result
from nmpsim.debugger.instructions import list_accesses, read_descriptor
from nmpsim.debugger.tracing import locate_byte
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.table import DESCRIPTORS
from nmpsim.memory.address_map import read_bytes

DEVICE = device()
EXAMPLES = examples(30)
JOB_BYTES = 12
"""Code size of one job."""


class Jobs:
    """Executed tensor instructions, with the machine before and after each of them."""

    def __init__(self, jobs: Sequence[Job], layout: Layout) -> None:
        self.names = [BY_MNEMONIC[mnemonic].descriptor or "" for mnemonic, _ in jobs]
        self._program = from_descriptors(
            *jobs, scratchpad=layout.contents(), config=DEVICE, layer_channels=(7, 16, 1)
        )
        self.states = [self._after(done) for done in range(len(jobs) + 1)]
        self.words = [self._words(number) for number in range(len(jobs))]
        self._mnemonics = [mnemonic for mnemonic, _ in jobs]

    def _after(self, done: int) -> Machine:
        halt, image, end = from_descriptors().image, self._program.image, JOB_BYTES * done
        cut = image[:end] + halt + image[end + len(halt) :]
        return run("compiled", attrs.evolve(self._program, image=cut))[1]

    def _words(self, number: int) -> dict[str, int]:
        before = sum(DESCRIPTORS[name].nbytes for name in self.names[:number])
        address = IMAGE_BASE + JOB_BYTES * len(self.names) + 4 + before
        return read_descriptor(self.states[0], 0, self.names[number], address)

    def results(
        self, number: int, rng: np.random.Generator
    ) -> Iterator[tuple[OutputElement, int, int]]:
        """Yield element, address and size in bytes of some results of a job."""
        words, instruction = self.words[number], BY_MNEMONIC[self._mnemonics[number]]
        for access in list_accesses(instruction, words, 0, 0):
            if access.operand == "output":
                region, size = (
                    access.region,
                    words.get("element_bytes", 1 << words.get("element", 0)),
                )
                for start in rng.choice(
                    region.list_starts(), min(3, region.list_starts().size), replace=False
                ):
                    address = int(start) + size * int(rng.integers(0, region.run // size))
                    at, byte = locate_byte(region, address)
                    yield OutputElement(at, byte // size), address, size


def check(jobs: Sequence[Job], layout: Layout, rng: np.random.Generator) -> None:
    """Assert that explanations from the memory before a job match the memory after the job."""
    run = Jobs(jobs, layout)
    for number, name in enumerate(run.names):
        for element, address, size in run.results(number, rng):
            parts = earlier(run, number, element)
            made = trace_result(run.states[number], 0, name, run.words[number], element, parts)
            stored = read_bytes(run.states[number + 1], 0, address, size) or b""
            assert made.result == int.from_bytes(stored, "little", signed=True), (element, made)
            check_steps(made)


def earlier(run: Jobs, number: int, element: OutputElement) -> list[Term]:
    """Return the terms that the preceding parts of a sum have added."""
    return [
        term
        for one in range(number)
        if run.words[number].get("part") and run.words[one].get("part") in (1, 2)
        for term in list_terms(run.states[one], 0, run.names[one], run.words[one], element)
    ]


def check_steps(made: ResultTrace) -> None:
    """Assert that each step leads to the next one."""
    assert made.steps[-1].value == made.result
    steps = {step.name: step for step in made.steps}
    result, rescaled = steps.get("result"), steps.get("rescaled")
    if result is None or rescaled is None or not result.formula.startswith("rescaled + "):
        return
    added = int(result.formula.split(", ")[0].split()[-1])
    if "bias" in result.formula:
        added += int(np.clip(steps["bias"].value, -(1 << 61), 1 << 61))
    assert int(rescaled.value) + added == result.value, made.steps


@pytest.mark.parametrize("kind", [kind for kind in JOBS if kind not in MOVES])
def test_every_result_is_explained(kind: str) -> None:
    @given(st.data(), SEED)
    @EXAMPLES
    def explained(data: st.DataObject, seed: int) -> None:
        layout = Layout()
        check(data.draw(JOBS[kind](layout)), layout, np.random.default_rng(seed))

    explained()


@given(st.data(), SEED)
@EXAMPLES
def test_moved_bytes_are_explained(data: st.DataObject, seed: int) -> None:
    draw, rng = data.draw, np.random.default_rng(seed)
    layout, count = Layout(), draw(st.integers(1, 80))
    source, table = (layout.put(draw(values("int8", n)), 1) for n in (count, 256))
    look_up = {"input": source, "output": layout.reserve(count, 1), "table": table, "count": count}
    value, element = draw(st.integers(-128, 127)), draw(st.integers(0, 1))
    fill = {"output": layout.reserve(80), "count": 30, "value": value, "element": element}
    size = draw(st.sampled_from([1, 2, 4, 8]))
    copy = {"input": layout.put(rng.bytes(4000)), "output": layout.reserve(4000)}
    copy["element_bytes"] = size
    for n in range(4):
        copy[f"size_{n}"] = draw(st.integers(1, 4))
        copy[f"in_stride_{n}"] = size * draw(st.integers(0, 12))
        copy[f"out_stride_{n}"] = size * draw(st.integers(0, 12))
    check([("nmp.lut", look_up), ("nmp.fill", fill), ("nmp.transpose", copy)], layout, rng)
