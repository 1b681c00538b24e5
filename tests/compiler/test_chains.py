"""Test that chains of layers give the results of the same layers one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_recount import check_actions
from compiled_runs import check_refusal
from hypothesis import given
from hypothesis import strategies as st
from program_writer import Program, Size
from random_programs import image_networks
from report_laws import check_laws
from tiers import examples
from tiling_runs import digits

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.metadata import list_chains
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling import chain_plan
from nmpsim.compiler.tiling.chain_buffers import estimate_addresses
from nmpsim.compiler.tiling.chain_cores import make_row_keys
from nmpsim.compiler.tiling.chain_cost import list_chain_tilings
from nmpsim.compiler.tiling.chain_division import ChainDivision, divide_chain
from nmpsim.compiler.tiling.chain_plan import plan_chain
from nmpsim.compiler.tiling.chain_schedule import ChainInstruction, hoist_loads, write_items
from nmpsim.compiler.tiling.chain_search import ChainSearch, ChosenChain, find_chains
from nmpsim.compiler.tiling.compiled.items import BARRIER, WAIT
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.isa.table import Unit


def choose_random_chains(draw: st.DrawFn) -> Callable[..., list[ChosenChain]]:
    """Return a method that takes the place of ``choose_chains`` and draws chains and tilings."""

    def choose(
        search: ChainSearch, operations: Any, read: Any, costs: Any, always: frozenset[str]
    ) -> list[ChosenChain]:
        config = search.config
        found: list[ChosenChain] = []
        chains = list(find_chains(operations, read, always, config))
        while chains:
            chain = draw(st.sampled_from(chains))
            tilings = [
                tiling
                for group in list_chain_tilings(chain, config).values()
                for tiling in group
                if divide_chain(chain, tiling, config) is not None
            ]
            if tilings:
                tiling = draw(st.sampled_from(tilings))._replace(
                    group_bytes=draw(st.sampled_from((2048, 8192))),
                    loads_ahead=draw(st.integers(1, 6)),
                )
                division = divide_chain(chain, tiling, config)
                assert division is not None
                if plan_chain(division, config, estimate_addresses(search.memory)) is not None:
                    found.append(ChosenChain(chain, tiling, ()))
            chains = [one for one in chains if one.last < chain.first or one.first > chain.last]
        return sorted(found, key=lambda one: one.chain.first)

    return choose


def compile_both(
    program: Program, config: DeviceConfig, monkeypatch: pytest.MonkeyPatch, choose: Any
) -> tuple[Bundle, Bundle] | None:
    """Return the bundle without chains and that with the chosen ones; None if a tile is too big."""
    options: dict[str, Any] = {"numerics": program.numerics}
    try:
        layers = compile_module(program.module, config, tiling="layer", **options)
        separate = parse_bundle(layers)
        if choose is not None:
            monkeypatch.setattr(ChainSearch, "choose_chains", choose)
        chained = parse_bundle(compile_module(program.module, config, tiling="chain", **options))
    except UserError as error:
        check_refusal(error, config)
        return None
    return separate, chained


def check_equal_results(
    separate: Bundle, chained: Bundle, program: Program, config: DeviceConfig
) -> None:
    """Assert that the outputs, and the outputs of layers that are in DRAM, are equal."""
    reports = []
    for bundle in (separate, chained):
        device, works = Device(config, "compiled"), list[Any]()
        report = device.run(bundle, program.inputs, strict=True, work=works.append)
        assert report.contract.violation is None, report.contract.violation
        check_laws(report, config)
        check_actions(report, works, bundle, config)
        reports.append(report)
    for name, expected in reports[0].outputs.items():
        np.testing.assert_array_equal(reports[1].outputs[name], expected, err_msg=name)
    for before, after in zip(*(one.layers for one in reports), strict=True):
        assert (after.macs, after.elements) == (before.macs, before.elements)
        assert after.saturation == before.saturation
        assert max(after.use.dram_busy, after.use.mac_utilization) <= 1, after.name


@examples(12)
@given(
    st.data(),
    image_networks(),
    st.sampled_from((1, 3, 8, 32)),
    st.sampled_from((16, 48, 128)),
)
def test_random_chains_give_the_results_of_single_layers(
    data: st.DataObject, program: Program, cores: int, kib: int
) -> None:
    config = Size(cores, kib * 1024).config
    with pytest.MonkeyPatch.context() as monkeypatch:
        both = compile_both(program, config, monkeypatch, choose_random_chains(data.draw))
    if both is not None:
        check_equal_results(*both, program, config)


@examples(8)
@given(st.data(), image_networks(), st.sampled_from((3, 8, 32)), st.sampled_from((48, 128)))
def test_cores_with_equal_rows_get_the_instructions_of_one_core(
    data: st.DataObject, program: Program, cores: int, kib: int
) -> None:
    config = Size(cores, kib * 1024).config
    found: list[ChosenChain] = []

    def choose(*arguments: Any) -> list[ChosenChain]:
        found.extend(choose_random_chains(data.draw)(*arguments))
        return found

    def separate_keys(division: ChainDivision) -> list[int]:
        return list(range(division.tiling.cores))

    images = []
    for method, keys in ((choose, make_row_keys), (lambda *_: found, separate_keys)):
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(ChainSearch, "choose_chains", method)
            monkeypatch.setattr(chain_plan, "make_row_keys", keys)
            try:
                module, numerics = program.module, program.numerics
                image = compile_module(module, config, tiling="chain", numerics=numerics)
            except UserError as error:
                check_refusal(error, config)
                return
        images.append(bytes(image))
    assert images[0] == images[1]


def test_digits_with_chains_takes_fewer_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    program, config = digits(), default_device()
    both = compile_both(program, config, monkeypatch, None)
    assert both is not None
    check_equal_results(*both, program, config)
    separate, chained = (Device(config).run(one, program.inputs).cycles for one in both)
    assert list_chains(both[1].metadata.layers)
    assert chained < separate


def make_load(begin: int, end: int) -> ChainInstruction:
    return ChainInstruction(Unit.LOAD, "nmp.load", {}, (), ((begin, end),), can_move=True)


def make_computation(*spans: tuple[int, int]) -> ChainInstruction:
    *reads, write = spans
    return ChainInstruction(Unit.MAC, "nmp.conv", {}, tuple(reads), (write,))


def test_loads_move_to_where_their_buffers_are_free() -> None:
    first, second = make_load(0, 64), make_load(64, 128)
    reader, other = make_computation((0, 64), (512, 520)), make_computation((64, 128), (520, 528))
    reload = make_load(0, 64)
    last = make_computation((0, 64), (528, 536))
    order = hoist_loads([first, reader, second, other, reload, last], most=2)
    assert order == [first, second, reader, reload, other, last]
    assert hoist_loads([first, reader, second, other], most=0) == [first, reader, second, other]


def test_instructions_wait_for_the_units_whose_bytes_they_use() -> None:
    store = ChainInstruction(Unit.STORE, "nmp.store", {}, ((512, 520),), ())
    barrier = ChainInstruction(None, "", {}, (), ())
    instructions = [
        make_load(0, 64),
        make_load(64, 128),
        make_computation((0, 64), (512, 520)),
        store,
        barrier,
        make_load(0, 32),
    ]
    load, mac, stored = int(Unit.LOAD), int(Unit.MAC), int(Unit.STORE)
    assert write_items(instructions, 5, [10, 20, 30, 40]) == [
        (load, 10),
        (load, 11),
        (WAIT + load, 1),
        (mac, 30),
        (WAIT + mac, 0),
        (stored, 20),
        (WAIT + stored, 0),
        (BARRIER, 5),
        (load, 12),
        (WAIT + load, 0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("tf2_mobilenet_v2_1.0_224_ptq", 1_160_000),
        ("mobilenet_v1_0.5_160_quant", 355_000),
        ("vww96_int8", 71_000),
        ("resnet8_int8", 44_000),
        ("dscnn_kws_int8", 22_800),
    ],
)
def test_chains_of_shared_models(name: str, most: int, shared: Path) -> None:
    folder = shared / "models" / name
    config = default_device()
    reports = []
    for tiling in ("layer", "chain"):
        bundle = nmpsim.compile(folder / "model.tflite", tiling=tiling).bundle
        (tensor,) = bundle.metadata.inputs
        image = np.load(folder / "inputs.npy")[:1].reshape(tensor.shape)
        reports.append(Device(config).run(bundle, {tensor.name: image}, strict=True))
    for output, expected in reports[0].outputs.items():
        np.testing.assert_array_equal(reports[1].outputs[output], expected)
    assert reports[1].contract.violation is None
    assert all(layer.use.dram_busy <= 1 for layer in reports[1].layers)
    assert reports[1].device_cycles <= most
