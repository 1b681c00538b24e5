"""Test the host memory of whole layers."""

from __future__ import annotations

import os
import tracemalloc
from typing import Any

import attrs
import numpy.typing as npt
import pytest
from lir_draft import Draft, tensor_type
from test_whole_layers import DEEP, convolve, network, out_kind
from whole_recordings import Recording, make_plan, needs_recordings, record

from nmpsim.core import memory_demand
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels import convolution
from nmpsim.core.layer_kernels.tasks import HostMemory
from nmpsim.isa.words import CONV
from nmpsim.kernels import packed_weights

pytestmark = needs_recordings


@pytest.fixture(scope="module")
def recorded() -> Recording:
    return record(network(), DEEP)


def test_reserved_memory_is_used_only_when_written(recorded: Recording) -> None:
    machine = recorded.machine
    host = HostMemory(machine)
    tracemalloc.start()
    words = [host.reserve_zeros(1 << 24) for _ in range(3)]
    assert tracemalloc.get_traced_memory()[1] < 1 << 16
    tracemalloc.stop()
    assert len(set(words)) == 3
    assert [room.size for room in host.kept] == 3 * [1 << 27]
    assert not any(room[:4096].any() for room in host.kept)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked off")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_packed_weights_belong_to_one_process(recorded: Recording) -> None:
    """Another one that ends while it packs weights would leave them half packed."""
    host = HostMemory(recorded.machine)
    host.reserve_zeros(8)
    (room,) = host.kept
    child = os.fork()
    if child == 0:
        room[:] = 1
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not room.any()


def test_packed_weights_fit_their_workspace(
    recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for as kernels ask for it: blocks of channels, and inputs of each channel."""
    asked: list[tuple[int, int]] = []

    def get_packed_weights_size(blocks: int, depth: int) -> int:
        asked.append((blocks, depth))
        return 0

    monkeypatch.setattr(convolution, "get_packed_weights_size", get_packed_weights_size)
    plan = make_plan(recorded)
    w = CONV
    taken = {
        (-(-d[w.out_channels] // 16), d[w.kernel_h] * -(-d[w.kernel_w] * d[w.in_channels] // 4) * 4)
        for step in plan.steps for task in step.tasks
        for number, d in task if number == OP.nmp_conv
    }  # fmt: skip
    assert set(asked) == taken


def test_packed_weights_do_not_exceed_their_estimate(
    recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on AVX2, where kernels keep most."""
    kept: list[int] = []
    keep, get_packed_weights_size = HostMemory.store_constant, packed_weights._size_avx2

    def put(host: HostMemory, values: npt.NDArray[Any]) -> int:
        kept.append(values.nbytes)
        return keep(host, values)

    def reserve(host: HostMemory, words: int) -> int:
        kept.append(8 * words)
        return 0

    monkeypatch.setattr(convolution, "get_packed_weights_size", get_packed_weights_size)
    monkeypatch.setattr(HostMemory, "store_constant", put)
    monkeypatch.setattr(HostMemory, "reserve_zeros", reserve)
    assert make_plan(recorded) is not None
    bundle, layers = recorded.bundle, recorded.bundle.metadata.layers
    blocks = sum(-(-layer.output.shape[-1] // 16) for layer in layers)
    assert (
        bundle.image.size
        < sum(kept)
        <= memory_demand.bound_packed_weight_bytes(bundle.image.size, blocks)
    )


def test_workspaces_suffice_for_any_weights() -> None:
    """In blocks of few inputs and of many, of which AVX2 keeps up to five times as much."""
    for blocks in (1, 2, 3, 8, 64, 300):
        for depth in (4, 8, 12, 36, 576, 4608):
            weights, groups = 16 * blocks * depth, [8] * (blocks // 8) + [blocks % 8]
            kept = [8 * packed_weights._size_avx2(group, depth) for group in groups if group]
            assert weights + sum(kept) <= memory_demand.bound_packed_weight_bytes(weights, blocks)
    assert 8 * packed_weights._size_avx2(1, 1 << 20) == pytest.approx(4.5 * (1 << 24), rel=1e-4)


@pytest.mark.parametrize("opcode", ["splat", "transpose", "relu", "convolution"])
def test_a_proof_does_not_exceed_its_estimate(opcode: str) -> None:
    """Proofs of layers with large tensors, whose arrays need most of the memory."""
    draft, kind = Draft(), tensor_type("i8", (1, 48, 48, 64), 0.05, 0)
    source = None if opcode == "splat" else draft.input(kind)
    turned = attrs.evolve(kind, shape=(1, 64, 48, 48))
    if source is None:
        draft.emit(opcode, draft.output(kind), Value=0.3)
    elif opcode == "transpose":
        draft.emit(opcode, draft.output(turned), source, Shuffle=(0, 3, 1, 2))
    elif opcode == "relu":
        draft.emit(opcode, draft.output(kind), source)
    else:
        convolve(draft, source, draft.output(out_kind(source, 64)))
    recorded = record(draft, attrs.evolve(DEEP, scratchpad_bytes=1 << 16))
    bundle, config = recorded.bundle, recorded.device.config
    tracemalloc.start()
    plan = make_plan(recorded)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.whole == {0}
    assert peak < sum(part.nbytes for part in memory_demand._whole_parts(bundle, config))
    assert peak > 6 * bundle.rw_bytes
