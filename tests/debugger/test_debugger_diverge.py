"""Causes that ``diverge`` finds for faults in programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest

import nmpsim
from nmpsim.analysis.difference import dequantize_values
from nmpsim.analysis.hypotheses import HypothesisResults
from nmpsim.analysis.matching import list_saved_tensors
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.metadata import Layer
from nmpsim.compiler.driver import compile_module
from nmpsim.core.run import make_layer_key
from nmpsim.debugger import Debugger
from nmpsim.debugger.changes import find_word_addresses, get_word_address
from nmpsim.debugger.commands import comparing
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.edits import Edit, Piece
from nmpsim.debugger.instructions import ExecutedInstruction
from nmpsim.debugger.reference import ReferenceOutputs
from nmpsim.debugger.tracing import trace_layer
from nmpsim.isa.codec import encode
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

NOTHING = encode("addi", {"rd": 0, "rs1": 0, "imm": 0}).to_bytes(4, "little")
TYPE = "i8[S:0.500000000 O:0][-64.000,63.500]<1 x 8 x 8 x 16>"
POOL = "{ Kernels: [3, 3], Strides: [1, 1], Pads: [1, 1, 1, 1], Layout: 0}"
SKIP = f"""function skip
declare {{
  %x = WeightVar {TYPE} mutable // size: 1024
  %y = WeightVar {TYPE} mutable // size: 1024

  ; size = 2048 bytes
}}

code {{
  0 %a = allocactivation {{ Ty: {TYPE}}}
  1 %first = elementmax @out %a, @in %x, @in %x
  2 %b = allocactivation {{ Ty: {TYPE}}}
  3 %pool = maxpool @out %b, @in %a {POOL}
  4 %free = deallocactivation @out %a
  5 %sum = elementadd @out %y, @in %b, @in %x
  6 %over = deallocactivation @out %b
}}
"""


class FaultInjector:
    """Debugger on a correct program into which faults are injected one by one."""

    def __init__(self, bundle: Bundle, inputs: dict[str, npt.NDArray[Any]]) -> None:
        self.debugger = Debugger(bundle, inputs)
        self.shell = Shell(self.debugger, lambda path: pytest.fail(f"nobody reads {path}"))
        self.debugger.run_to_end()
        layers = self.debugger.layers
        self.right = {
            make_layer_key(one): self.debugger.layer_outputs[one.index].copy() for one in layers
        }
        self.traces = {
            layer.index: trace_layer(self.debugger, layer.index)
            for layer in layers
            if layer.placement == "device"
        }

    def done(self, layer: str, mnemonic: str, core: int | None = None) -> list[ExecutedInstruction]:
        """Return the executed instructions of a layer of the correct program."""
        trace = self.traces[self.layer(layer).index]
        return [
            one
            for one in trace
            if one.instruction.mnemonic == mnemonic and core in (None, one.core)
        ]

    def layer(self, name: str) -> Layer:
        return nmpsim.find_layer(self.debugger.layers, name)

    def diverge(self, pieces: Sequence[Piece], reference: dict[str, Any] | None = None) -> Any:
        """Return the result of ``diverge`` after a change of bytes of the program."""
        known = {**self.right, **(reference or {})}
        tensors = list(list_saved_tensors(known, known.__getitem__))
        self.shell.reference = ReferenceOutputs(self.debugger.bundle.metadata, tensors)
        self.debugger.apply_edits(
            (Edit(0, tuple(dict.fromkeys(pieces)), "fault"),) if pieces else ()
        )
        return self.shell.execute("diverge").data


@pytest.fixture(autouse=True)
def no_hypotheses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for patterns alone; tests of hypotheses have files of their own."""
    results = HypothesisResults()
    monkeypatch.setattr(comparing, "explain_faulty_layer", lambda *arguments: results)


@pytest.fixture(scope="module")
def injector(digits: Bundle, seven: dict[str, npt.NDArray[np.float32]]) -> FaultInjector:
    return FaultInjector(digits, seven)


@pytest.fixture(scope="module")
def skip() -> FaultInjector:
    """Return a program whose input is read by the first and by the last layer."""
    module = parse(SKIP, "skip.lir")
    verify(module)
    device = attrs.evolve(nmpsim.default_device(), cores_count=4)
    rng = np.random.default_rng(3)
    image = rng.integers(-60, 60, (1, 8, 8, 16)).astype(np.int8)
    return FaultInjector(parse_bundle(compile_module(module, device)), {"x": image})


def word(done: ExecutedInstruction, name: str, change: Callable[[int], int]) -> Piece:
    """Return the address and the new bytes of a changed descriptor word."""
    value = change(done.words[name]) & 0xFFFF_FFFF
    return get_word_address(done, name), value.to_bytes(4, "little")


def words(
    done: Sequence[ExecutedInstruction], name: str, change: Callable[[int], int]
) -> list[Piece]:
    return [word(one, name, change) for one in done]


def without(done: Sequence[ExecutedInstruction]) -> list[Piece]:
    return [(one.pc, NOTHING) for one in done]


Fault = Callable[[FaultInjector], list[Piece]]
FAULTS: dict[str, tuple[Fault, str, tuple[str, ...]]] = {
    "a core stores nothing": (
        lambda p: without(p.done("conv1", "nmp.store", 2)), "conv1__2",
        ("were not written; core 2 computes these elements",),
    ),
    "a store is missing": (
        lambda p: without(p.done("conv1", "nmp.store", 1)[1:]), "conv1__2",
        ("(row 4 of 8) were not written; core 1 computes these elements",),
    ),
    "a pool's core stores nothing": (
        lambda p: without(p.done("pool1", "nmp.store", 3)), "pool1__2",
        ("(row 3 of 4) were not written; core 3 has not stored any result",),
    ),
    "a zero point of one core": (
        lambda p: words(p.done("conv1", "nmp.conv", 1), "out_offset", lambda v: v + 4), "conv1__2",
        ("out_offset of nmp.conv", "of core 1 is -124, but -128 on the other cores",
         "only in elements that core 1 stored",
         "all values are 4 too large (possible causes: zero point, offset)"),
    ),
    "a shift of one tile": (
        lambda p: words(p.done("conv1", "nmp.conv", 1)[1:], "out_post", lambda v: v - 1),
        "conv1__2",
        ("out_post of nmp.conv", "only in elements that nmp.store at", "stored (row 4 of 8)",
         "2 times the expected values (possible cause: factor)"),
    ),
    "a core's input is off by one pixel": (
        lambda p: words(p.done("conv1", "nmp.conv", 2), "input", lambda v: v + 1), "conv1__2",
        ("only in elements that core 2 stored", "moved by 0 rows and -1 columns"),
    ),
    "weights of one core": (
        lambda p: words(p.done("conv2", "nmp.conv", 0), "weights", lambda v: v + 64), "conv2__2",
        ("only in elements that core 0 stored (channels 0 to 15 of 32)",),
    ),
    "a store goes one byte too far": (
        lambda p: words(p.done("conv1", "nmp.store", 0), "dram", lambda v: v + 1), "conv1__2",
        ("(row 0 of 8, column 0 of 8, channel 0 of 16) were not written",
         "only in elements that core 0 stored", "moved by 1 channels"),
    ),
    "a store goes one row too far": (
        lambda p: words(p.done("conv1", "nmp.store", 0), "dram", lambda v: v + 128), "conv1__2",
        ("(row 0 of 8) were not written; core 0 computes these elements", "write the same elements",
         "moved by 1 rows and 0 columns"),
    ),
    "rows that lie too far apart": (
        lambda p: words(p.done("conv2", "nmp.store", 1), "spm_stride_y", lambda v: v - 16),
        "conv2__2",
        ("only in elements that core 1 stored", "only in rows 1 to 3 of 4"),
    ),
    "windows that lie too far apart": (
        lambda p: words(p.done("conv1", "nmp.conv"), "stride_w", lambda v: 2), "conv1__2",
        ("the distance of columns is 0.5 times the expected one (possible cause: stride)",),
    ),
    "another zero point": (
        lambda p: words(p.done("conv2", "nmp.conv"), "out_offset", lambda v: v + 5), "conv2__2",
        ("all values are 5 too large (possible causes: zero point, offset)",),
    ),
    "off by one": (
        lambda p: words(p.done("conv2", "nmp.conv"), "out_offset", lambda v: v + 1), "conv2__2",
        ("all values are 1 too large (possible causes: zero point, rounding)",),
    ),
    "another padding": (
        lambda p: words(p.done("conv1", "nmp.load"), "fill", lambda v: v + 30), "conv1__2",
        ("only at the border (possible causes: pads, padding value)",),
    ),
    "a bias": (
        lambda p: [
            (address, (1 << 20).to_bytes(size, "little"))
            for address, size in find_word_addresses(
                p.done("conv2", "nmp.conv")[0], "bias", 3, p.traces[p.layer("conv2").index])],
        "conv2__2",
        ("channel 3 of 32 (possible causes: weights, bias, factor)",),
    ),
    "columns are not stored": (
        lambda p: words(p.done("pool1", "nmp.store", 1), "count_x", lambda v: v - 1), "pool1__2",
        ("(row 1 of 4, column 3 of 4) were not written",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_diverge_finds_the_cause_of_a_planted_fault(name: str, injector: FaultInjector) -> None:
    fault, layer, parts = FAULTS[name]
    data = injector.diverge(fault(injector))
    assert data["first"] == layer
    text = "; ".join(data["causes"])
    for part in parts:
        assert part in text
    asked = {cause.partition(": ")[2] for cause in data["causes"] if cause.endswith("?")}
    wanted = {part.partition(": ")[2] for part in parts if part.endswith("?")}
    positions = {one for one in asked if "an address" in one or "stride" in one}
    assert asked <= wanted | positions, "and no other cause"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 20, 60])
def test_a_few_wrong_elements_have_no_cause(count: int, injector: FaultInjector) -> None:
    rng = np.random.default_rng(count)
    for name in ("conv1", "pool1", "conv2", "pool2"):
        key = make_layer_key(injector.layer(name))
        wrong = injector.right[key].copy()
        places = rng.choice(wrong.size, count, replace=False)
        wrong.reshape(-1)[places] ^= rng.integers(1, 100, count).astype(np.int8)
        data = injector.diverge([], {key: wrong})
        assert data["layers"][0]["accumulated"]["differing"] == count
        assert data["causes"] == []


def test_diverge_names_the_writer_of_an_overwritten_tensor(skip: FaultInjector) -> None:
    """The last store of the pool has one more row, which lies in the input."""
    (kept,) = skip.debugger.bundle.metadata.inputs
    store = skip.done("pool", "nmp.store")[-1]
    far = kept.address + 40 - store.words["dram"]
    assert store.words["count_y"] == 1
    data = skip.diverge([
        word(store, "count_y", lambda _: 2), word(store, "dram_stride_y", lambda _: far),
    ])  # fmt: skip
    assert data["first"] == "sum"
    assert data["verdict"].endswith("in isolation it is right")
    (cause,) = data["causes"]
    assert (
        "bytes of x, starting at element [0, 0, 2, 8], were overwritten before sum read them"
        in cause
    )
    assert f"last by nmp.store at {store.pc:#x} of core {store.core}" in cause
    assert cause.endswith("in pool")
    assert "watch x" in data["next"]


def test_diverge_finds_a_store_over_inputs_of_the_layer(injector: FaultInjector) -> None:
    first = injector.done("pool2", "nmp.store", 0)[0]
    source = injector.layer("conv2").output.address
    data = injector.diverge([word(first, "dram", lambda _: source + 300)])
    text = "; ".join(data["causes"])
    assert data["first"] == "pool2__2"
    assert f"nmp.store at {first.pc:#x} of core 0" in text
    assert f"writes outside of {injector.layer('pool2').output.name}" in text


def test_the_right_program_has_no_cause(injector: FaultInjector) -> None:
    assert injector.diverge([])["causes"] == []


def make_float_reference(injector: FaultInjector) -> dict[str, Any]:
    """Return float outputs that round to the correct outputs of the layers."""
    rng = np.random.default_rng(4)
    known = {}
    for layer in injector.debugger.bundle.metadata.layers:
        stored = injector.right[make_layer_key(layer)]
        if layer.output.scale is None:
            known[make_layer_key(layer)] = stored
        else:
            exact = dequantize_values(
                stored, layer.output.elem, layer.output.scale, layer.output.offset
            ) + layer.output.scale * rng.uniform(-0.4, 0.4, stored.shape)
            known[make_layer_key(layer)] = exact.astype(np.float32)
    return known


def test_a_float_reference_finds_the_layer_with_the_largest_error(injector: FaultInjector) -> None:
    known = make_float_reference(injector)
    told = injector.diverge([], known)
    assert (told["jump"], told["causes"]) == (None, [])
    assert len(told["layers"]) == sum(
        one.output.scale is not None for one in injector.debugger.layers
    )

    (conv,) = {one.index for one in injector.debugger.layers if one.name == "conv2__2"}
    fault = words(injector.done("conv2", "nmp.conv"), "out_post", lambda post: post + 1)
    told = injector.diverge(fault, known)
    assert (told["jump"], injector.debugger.find_current_layer()) == ("conv2__2", conv + 1)


def test_diverge_reports_an_unsuitable_range(injector: FaultInjector) -> None:
    known = make_float_reference(injector)
    layer = injector.layer("fc")
    key = make_layer_key(layer)
    told = injector.diverge([], {**known, key: 3 * known[key]})
    assert told["jump"] == layer.name
    assert "values exceed the range of the type" in told["causes"][0]
    told = injector.diverge([], {**known, key: known[key] / 20})
    assert told["worst"] == layer.name
    assert told["causes"][0].startswith("the range of the type is too wide: values are")
