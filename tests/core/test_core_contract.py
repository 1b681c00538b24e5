"""Programs that leave the contract of the instruction set are stopped and told how."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import pytest
from traced_memory import at_most

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig
from nmpsim.core import contract_check
from nmpsim.core.compiled.contract_order import RUNNING
from nmpsim.core.compiled.contract_state import (
    MAX_OPEN,
    MAX_POSTS,
    ContractState,
    StateWord,
    make_contract_state,
)
from nmpsim.core.compiled.entries import check_events
from nmpsim.core.contract_check import ContractCheck
from nmpsim.core.contract_events import ContractEvent, ViolationField
from nmpsim.core.instruction_tables import OP
from nmpsim.core.load import make_empty_machine
from nmpsim.isa.contract import CASES
from nmpsim.report.data import RunReport
from nmpsim.report.json import to_json
from nmpsim.report.termination import ViolationReport
from nmpsim.timing import get_costs

TWO_CORES = attrs.evolve(nmpsim.default_device(), cores_count=2)
THREE_CORES = attrs.evolve(TWO_CORES, cores_count=3)
TABLES = """
.input from, i8[S:1.0 O:0]<256>
.output to, i8[S:1.0 O:0]<64>
.buffer between, i8[S:1.0 O:0]<256>
.layer 0, copy, copy, to
get: .descriptor load, dram=from, spm=0x20000000, run_bytes=128, count_x=1, count_y=1
blank: .descriptor load, dram=between, spm=0x20000400, run_bytes=64, count_x=1, count_y=1
far: .descriptor load, dram=to, spm=0x20000400, run_bytes=64, count_x=1, count_y=1
use: .descriptor rescale, input=0x20000020, output=0x20000200, count=64, \\
 in_low=-128, in_high=127, out_mul=1, clip_low=-128, clip_high=127
put: .descriptor store, dram=to, spm=0x20000200, run_bytes=64, count_x=1, count_y=1
half: .descriptor store, dram=to, spm=0x20000200, run_bytes=32, count_x=1, count_y=1
even: .descriptor store, dram=to, spm=0x20000200, run_bytes=1, count_x=32, count_y=1, \\
 spm_stride_x=1, dram_stride_x=2
odd: .descriptor store, dram=to+1, spm=0x20000200, run_bytes=1, count_x=32, count_y=1, \\
 spm_stride_x=1, dram_stride_x=2
nop: .descriptor fill, output=0x20000800, count=4, value=0
"""


def job(kind: str, name: str) -> str:
    return f" la t0, {name}\n nmp.{kind} t0\n"


GET, BLANK, USE, PUT = (
    job("load", "get"),
    job("load", "blank"),
    job("rescale", "use"),
    job("store", "put"),
)
HALF, FAR = job("store", "half"), job("load", "far")
WAIT_LOAD, WAIT_VECTOR, WAIT_STORE = (f" nmp.wait {u}, 0\n" for u in ("load", "vector", "store"))
ONLY_0 = " csrr t2, mhartid\n bnez t2, other\n"
OTHER = "other:\n nmp.halt\n"
BARRIER = " li t3, 9\n li t4, 2\n nmp.barrier t3, t4\n"
DATA = " la t5, from\n lw t5, 0(t5)\n"
"""A scalar load: from here on nothing can be proved in advance."""
WHOLE = GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + WAIT_STORE
ENGINES = ("reference", "compiled")


def assemble_bundle(text: str, device: DeviceConfig = TWO_CORES) -> Bundle:
    source = TABLES + "_start:\n" + text
    return parse_bundle(assemble(source, "test.s", device.settings()).build_bundle())


def runs(text: str, device: DeviceConfig = TWO_CORES) -> list[RunReport]:
    """Return the reports of both engines and of a data-dependent run; all find the same case."""
    bundle, reports = assemble_bundle(text, device), []
    inputs: Mapping[str, np.ndarray] = {"from": np.ones(256, np.int8)}
    for engine in ENGINES:
        reports.append(nmpsim.Device(device, engine, threads=1).run(bundle, inputs))
    checked = assemble_bundle(DATA + text, device)
    reports.append(nmpsim.Device(device, threads=1).run(checked, inputs))
    cases = [r.contract.violation.case if r.contract.violation else None for r in reports]
    assert len(set(cases)) == 1, cases
    return reports


def violation(text: str, device: DeviceConfig = TWO_CORES) -> ViolationReport:
    reports = runs(text, device)
    for report in reports:
        assert report.trap is not None and report.trap.kind == "contract"
        assert report.contract.status == "violated"
    found = reports[1].contract.violation
    assert found is not None and attrs.evolve(found) == reports[0].contract.violation
    assert get_comparable_fields(reports[0]) == get_comparable_fields(reports[1])
    return found


def get_comparable_fields(report: RunReport) -> dict[str, object]:
    """Return the fields of a report that depend on neither engine nor host speed."""
    return {k: v for k, v in to_json(report).items() if k not in ("engine", "host_seconds")}


def assert_contract_holds(text: str, device: DeviceConfig = TWO_CORES) -> None:
    reference, compiled, checked = runs(text, device)
    assert [r.trap for r in (reference, compiled, checked)] == [None] * 3
    assert compiled.contract.status in ("proved", "checked")
    assert reference.contract == compiled.contract
    assert checked.contract.status == "checked"


def test_a_correct_program_is_proved_once() -> None:
    assert_contract_holds(ONLY_0 + WHOLE + OTHER)
    bundle, inputs = assemble_bundle(ONLY_0 + WHOLE + OTHER), {"from": np.ones(256, np.int8)}
    device = nmpsim.Device(TWO_CORES, threads=1)
    statuses = [device.run(bundle, inputs).contract.status for _ in range(2)]
    assert statuses in (["proved", "proved"], ["checked", "checked"])
    assert device.run(bundle, inputs, strict=False).contract.status == "not_checked"
    assert device.run(bundle, inputs, save_layers=True).contract.status == statuses[0]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (GET + USE + WAIT_VECTOR + PUT, "load"),
        (GET + WAIT_LOAD + USE + PUT, "vector"),
        (GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + USE, "store"),
        (GET + WAIT_LOAD + USE + GET, "vector"),
    ],
)
def test_a_missing_wait_is_a_violation(text: str, unit: str) -> None:
    found = violation(ONLY_0 + text + WAIT_STORE + OTHER)
    assert (found.code, found.case) == ("CONTRACT003", "unit_order")
    assert found.category == "missing synchronization"
    assert f"nmp.wait {unit}, 0" in found.hint
    assert found.core == found.other_core == 0
    assert found.layer == "copy"
    assert found.instruction is not None and found.other_instruction is not None


def test_a_violation_names_its_bytes() -> None:
    found = violation(ONLY_0 + GET + USE + OTHER)
    assert (found.first_address, found.last_address) == (0x2000_0020, 0x2000_005F)
    assert found.operand == "input"
    assert found.instruction == "nmp.rescale t0"
    assert found.other_instruction == "nmp.load t0"
    assert "core 0 nmp.rescale at " in found.message
    assert "reads scratchpad 0x20000020 to 0x2000005f (input)" in found.message


def test_a_read_of_unwritten_bytes_is_a_violation() -> None:
    found = violation(ONLY_0 + USE + WAIT_VECTOR + PUT + WAIT_STORE + OTHER)
    assert (found.code, found.case) == ("CONTRACT002", "scratchpad_unwritten")
    assert found.first_address == 0x2000_0020
    assert found.other_core is None
    found = violation(ONLY_0 + BLANK + WAIT_LOAD + WHOLE + OTHER)
    assert (found.code, found.case, found.tensor) == ("CONTRACT002", "dram_unwritten", "between")


def test_an_output_without_a_store_is_a_violation() -> None:
    found = violation(ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + HALF + WAIT_STORE + OTHER)
    assert (found.code, found.case, found.tensor) == ("CONTRACT002", "host_reads_unwritten", "to")
    assert found.core is None and found.message.startswith("the host reads DRAM")


def test_an_unfinished_store_at_the_end_is_a_violation() -> None:
    found = violation(ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + OTHER)
    assert (found.code, found.case, found.tensor) == ("CONTRACT003", "host_order", "to")
    assert "nmp.wait store, 0" in found.hint


def make_two_core_program(first: str, second: str) -> str:
    """Return a program in which core 0 runs ``first`` and core 1 runs ``second``."""
    return ONLY_0 + first + " nmp.halt\nother:\n" + second + " nmp.halt\n"


def test_cores_must_wait_at_a_barrier() -> None:
    read = FAR + WAIT_LOAD
    for bad in (
        make_two_core_program(
            WHOLE, " li t5, 2000\nspin: addi t5, t5, -1\n bnez t5, spin\n" + read
        ),
        make_two_core_program(
            GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + BARRIER + WAIT_STORE, BARRIER + read
        ),
    ):
        found = violation(bad)
        assert (found.code, found.case, found.tensor) == ("CONTRACT003", "core_order", "to")
        assert (found.core, found.other_core) == (1, 0)
    assert_contract_holds(make_two_core_program(WHOLE + BARRIER, BARRIER + read))


def test_interleaved_bytes_do_not_overlap() -> None:
    make = GET + WAIT_LOAD + USE + WAIT_VECTOR
    even, odd = (make + job("store", name) + WAIT_STORE for name in ("even", "odd"))
    assert_contract_holds(make_two_core_program(even, odd))
    assert violation(make_two_core_program(even, even)).case == "core_order"


LATE = " li t5, 2000\nspin: addi t5, t5, -1\n bnez t5, spin\n"
SEMAPHORE = " li t3, 5\n li t4, 1\n"
POST, PEND = SEMAPHORE + " nmp.post t3, t4\n", SEMAPHORE + " nmp.pend t3, t4\n"


def test_semaphores_order_accesses() -> None:
    read = FAR + WAIT_LOAD
    assert_contract_holds(make_two_core_program(WHOLE + POST, PEND + read))
    assert_contract_holds(
        make_two_core_program(
            " li t5, 9000\nspin: addi t5, t5, -1\n bnez t5, spin\n" + WHOLE + POST, PEND + read
        )
    )
    found = violation(make_two_core_program(POST + WHOLE + POST, PEND + LATE + read))
    assert found.case == "core_order", "the first post would have been enough"
    assert_contract_holds(make_two_core_program(POST + WHOLE + POST, PEND + PEND + read))


def make_three_core_program(giver: str, other: str, taker: str) -> str:
    """Return a program in which cores 0, 1 and 2 run ``giver``, ``other`` and ``taker``."""
    begin = " csrr t2, mhartid\n li t3, 1\n beq t2, t3, one\n li t3, 2\n beq t2, t3, two\n"
    halt = " nmp.halt\n"
    return begin + giver + halt + "one:\n" + other + halt + "two:\n" + taker + halt


def test_an_earlier_post_may_serve_a_pend() -> None:
    """It comes later here, and nothing says that it does."""
    read = FAR + WAIT_LOAD
    found = violation(make_three_core_program(WHOLE + POST, LATE + POST, PEND + read), THREE_CORES)
    assert found.case == "core_order"
    assert (found.core, found.other_core) == (2, 0)
    assert_contract_holds(
        make_three_core_program(WHOLE + POST, LATE + POST, PEND + PEND + read), THREE_CORES
    )


def test_a_post_ordered_after_the_pend_cannot_serve_it() -> None:
    answer, asked = (s.replace("t3, 5", "t3, 6") for s in (POST, PEND))
    taker = PEND + FAR + WAIT_LOAD + answer + PEND
    assert_contract_holds(make_three_core_program(WHOLE + POST, asked + POST, taker), THREE_CORES)
    found = violation(
        make_three_core_program(WHOLE + POST + LATE + answer, asked + POST, taker), THREE_CORES
    )
    assert (found.core, found.other_core) == (2, 0), "what that knows falls with a rival of its own"


def test_too_many_pends_make_the_check_incomplete() -> None:
    """Too many to be sure, and no false alarm."""
    many = f" li t6, {MAX_POSTS + 1}\nagain{{}}:\n{{}} addi t6, t6, -1\n bnez t6, again{{}}\n"
    text = make_two_core_program(
        WHOLE + many.format(0, POST, 0), many.format(1, PEND, 1) + FAR + WAIT_LOAD
    )
    for report in runs(text):
        assert report.contract.status == "not_checked"


def test_stored_instructions_take_little_memory() -> None:
    check = ContractCheck(make_empty_machine(), get_costs(TWO_CORES), lambda *_: True)
    words = np.zeros((1 << 14, 44), np.int64)
    events = np.zeros((len(words), len(ContractEvent)), np.int64)
    events[:, ContractEvent.ITEM] = events[:, ContractEvent.CYCLE] = np.arange(len(events))
    events[:, ContractEvent.NUMBER], events[0, ContractEvent.NUMBER] = OP.lw, OP.nmp_post
    events[:, ContractEvent.FIRST] = 0xA000_0000 + 4 * np.arange(len(events)) % 4096
    check.consume(events, words, 0)  # the state is copied
    with at_most(8_000_000):
        for _ in range(16):
            check.consume(events, words, 0)


def test_a_second_check_uses_the_recorded_instructions() -> None:
    rng = np.random.default_rng(3)
    shown: list[tuple[bytes, bytes]] = []

    def note(_: ContractState, events: np.ndarray, words: np.ndarray, first_word: int) -> bool:
        assert events.flags.writeable and words.flags.writeable
        is_tensor = np.isin(events[:, ContractEvent.NUMBER], (OP.nmp_load, OP.nmp_conv))
        rows = words[events[is_tensor, ContractEvent.ITEM], first_word:]
        shown.append((events[:, : ContractEvent.ITEM].tobytes(), rows.tobytes()))
        return True

    check = ContractCheck(make_empty_machine(), get_costs(TWO_CORES), note)
    for count in (1, 1, 50):
        events = rng.integers(0, 1 << 32, (count, len(ContractEvent)))
        events[:, ContractEvent.ITEM] = rng.permutation(count)
        events[:, ContractEvent.NUMBER] = rng.choice([OP.lw, OP.nmp_load, OP.nmp_conv], count)
        events[0, ContractEvent.NUMBER] = OP.nmp_post
        check.consume(events, rng.integers(-(1 << 40), 1 << 40, (count, 48)), 3)
    check.begin_segment()
    first = list(shown)
    shown.clear()
    assert check._before is not None
    check._check_again(check._before)
    assert shown == first


def test_too_many_instructions_make_the_check_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """No false alarm where a rival comes too late; what needs no second check is as before."""
    monkeypatch.setattr(contract_check, "MAX_LOG_BYTES", 0)
    read = FAR + WAIT_LOAD
    assert_contract_holds(make_two_core_program(WHOLE + POST, PEND + read))
    assert (
        violation(make_two_core_program(POST + WHOLE + POST, PEND + LATE + read)).case
        == "core_order"
    )
    for report in runs(
        make_three_core_program(WHOLE + POST, LATE + POST, PEND + read), THREE_CORES
    ):
        assert report.contract.status == "not_checked"


def test_the_control_block_orders_accesses() -> None:
    flag = " li t3, 0x10000000\n"
    write = WHOLE + flag + " li t4, 1\n sw t4, 8(t3)\n"
    read = flag + "poll:\n lw t4, 8(t3)\n beqz t4, poll\n" + FAR + WAIT_LOAD
    bundle, inputs = (
        assemble_bundle(make_two_core_program(write, read)),
        {"from": np.ones(256, np.int8)},
    )
    for engine in ENGINES:
        report = nmpsim.Device(TWO_CORES, engine, threads=1).run(bundle, inputs)
        assert report.trap is None
    late = read.replace(FAR, LATE + FAR)
    swapped = make_two_core_program(flag + " li t4, 1\n sw t4, 8(t3)\n" + WHOLE, late)
    assert violation(swapped).case == "core_order"


def test_different_barriers_do_not_order_cores() -> None:
    one = " li t3, 9\n li t4, 1\n nmp.barrier t3, t4\n"
    late = " li t5, 900\nspin: addi t5, t5, -1\n bnez t5, spin\n"
    found = violation(make_two_core_program(BARRIER, late + one))
    assert (found.code, found.case) == ("CONTRACT001", "barrier_counts")


PEEK = " li t5, 0x20000000\n lw t6, 32(t5)\n"


def test_scalar_accesses_are_checked() -> None:
    assert violation(ONLY_0 + GET + PEEK + OTHER).case == "unit_order"
    assert violation(ONLY_0 + PEEK + OTHER).case == "scratchpad_unwritten"
    assert violation(ONLY_0 + " la t5, between\n lw t6, 4(t5)\n" + OTHER).case == "dram_unwritten"
    poke = " li t5, 0x20000020\n sb zero, 1(t5)\n lw t6, 0(t5)\n"
    assert_contract_holds(ONLY_0 + poke + WHOLE + OTHER)
    racy = violation(
        make_two_core_program(
            " la t5, between\n sw zero, 4(t5)\n" + WHOLE, " la t5, between\n lw t6, 4(t5)\n"
        )
    )
    assert racy.case in ("core_order", "dram_unwritten")


def test_unfinished_loads_of_code_and_descriptors_are_violations() -> None:
    tables = """
bring: .descriptor load, dram=code, spm=0x20000600, run_bytes=32, count_x=1, count_y=1
code:
 addi t6, t6, 1
 jr ra
 .word 0, 0, 0, 0, 0, 0
"""
    bring, jump = job("load", "bring"), " li t5, 0x20000600\n jalr ra, 0(t5)\n"
    found = violation(ONLY_0 + bring + jump + OTHER + tables)
    assert (found.code, found.case, found.operand) == ("CONTRACT003", "fetch_order", "code")
    assert_contract_holds(ONLY_0 + bring + WAIT_LOAD + jump + WHOLE + OTHER + tables)
    words = tables.replace("dram=code", "dram=nop").replace("run_bytes=32", "run_bytes=20")
    fill = " li t0, 0x20000600\n nmp.fill t0\n"
    found = violation(ONLY_0 + bring + fill + OTHER + words)
    assert (found.case, found.operand) == ("fetch_order", "descriptor")
    assert_contract_holds(ONLY_0 + bring + WAIT_LOAD + fill + WHOLE + OTHER + words)


def conv(tail: int, in_channels: int, out_channels: int) -> str:
    """Return code for a one-pixel convolution whose weights are 1, padded with ``tail``."""
    blocks = -(-in_channels // 4)
    weights = np.full((1, blocks, 16, 4), tail, np.int8)
    for channel in range(in_channels):
        weights[0, channel // 4, :out_channels, channel % 4] = 1
    data = weights.tobytes() + bytes(16 * out_channels)
    listed = ", ".join(map(str, np.frombuffer(data, np.int32).tolist()))
    at = 0x2000_1000
    return (
        """
 la t0, bring
 nmp.load t0
 la t0, get
 nmp.load t0
 nmp.wait load, 0
 la t0, conv
 nmp.conv t0
 nmp.wait mac, 0
"""
        + WHOLE
        + OTHER
        + f"""
bring: .descriptor load, dram=data, spm={at}, run_bytes={len(data)}, count_x=1, count_y=1
conv: .descriptor conv, input=0x20000000, weights={at}, channels={at + weights.size}, \\
 output=0x20000900, groups=1, in_channels={in_channels}, out_channels={out_channels}, kernel_h=1, \\
 kernel_w=1, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, out_h=1, out_w=1, \\
 in_row_stride=64, in_pixel_stride=64, out_row_stride=64, out_pixel_stride=64, out_mul=1, \\
 bias_mul=1, clip_low=-128, clip_high=127
.align 3
data: .word {listed}
"""
    )


@pytest.mark.parametrize(("inputs", "outputs"), [(5, 16), (4, 3), (7, 17)])
def test_weights_beyond_the_edges_must_be_zero(inputs: int, outputs: int) -> None:
    if outputs > 16:
        outputs = 15
    assert_contract_holds(ONLY_0 + conv(0, inputs, outputs))
    found = violation(ONLY_0 + conv(3, inputs, outputs))
    assert (found.code, found.case, found.operand) == ("CONTRACT001", "weight_tail", "weights")
    assert found.first_address >= 0x2000_1000


def test_a_full_list_keeps_the_newest_access() -> None:
    """Room is made by forgetting what the other core is ordered behind, and nothing else."""
    base, nbytes = 0xA000_0000, 4 * MAX_OPEN + 8
    state = make_contract_state(2, 0, base, nbytes, 4)

    def show(name: str, core: int, first: int, second: int) -> bool:
        event = np.zeros((1, len(ContractEvent)), np.int64)
        event[0, ContractEvent.NUMBER], event[0, ContractEvent.CORE] = getattr(OP, name), core
        event[0, [ContractEvent.FIRST, ContractEvent.SECOND]] = first, second
        return bool(check_events(state, event, event, 0))

    for core in range(2):
        state.waits[core, 0] = RUNNING
    events = np.zeros((MAX_OPEN, len(ContractEvent)), np.int64)
    events[:, ContractEvent.NUMBER], events[:, ContractEvent.FIRST] = (
        OP.sw,
        base + 4 * np.arange(MAX_OPEN),
    )
    assert check_events(state, events, events, 0)
    assert show("nmp_post", 0, 3, 1)
    assert show("nmp_pend", 1, 3, 1)
    newest = base + 4 * MAX_OPEN
    assert show("sw", 0, newest, 0)
    assert state.numbers[StateWord.OPEN] == 1, "all but the newest are forgotten"
    assert show("lw", 1, newest - 4, 0), "that one is ordered"
    assert not show("lw", 1, newest, 0)
    assert CASES[state.found[ViolationField.CASE]].key == "core_order"
    assert not state.numbers[StateWord.IS_INCOMPLETE]
