"""Cycle counts worked out with pencil and paper from the default costs, on both engines.

An instruction takes 1 cycle, ``la`` two of them; a tensor instruction reads its descriptor for 8
more. A transfer asks the DRAM 4 cycles after it begins; a burst of 64 bytes takes 4 cycles, a row
miss 20, the data are there 40 later. The vector unit takes 4 cycles and one for 16 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from core_machines import device, from_text, run_both

from nmpsim.core.state import CountColumn, Machine

TWO = device(2)


def load(name: str, dram: str, nbytes: int) -> str:
    box = f"spm=0x20000000, run_bytes={nbytes}, count_x=1, count_y=1"
    return f"{name}: .descriptor load, dram={dram}, {box}\n"


def counts(m: Machine, layer: int = 0) -> dict[str, int]:
    record: Any = m.layers.counts[layer]
    return {count.name: int(record[count]) for count in CountColumn if record[count]}


def test_a_load_takes_its_cycles() -> None:
    m = run_both(
        from_text(
            load("first", "0xA0000000", 128)
            + """
        _start:
            la       t0, first      # 0 to 2
            nmp.load t0             # descriptor until 10: the transfer begins; issued at 11
            nmp.wait load, 0
            nmp.halt
            """
        )
    )
    # Request at 14, a row miss and two bursts until 42, data at 82; wait 83, halt 84.
    assert m.cores.clock.tolist() == [84]
    assert m.cores.retired.tolist() == [5]
    assert counts(m) == {
        "CONTROL": 2 + 9 + 1 + 1,
        "WAIT_LOAD": 82 - 11,
        "BUSY_LOAD": 28,
        "BYTES_READ": 128,
        "BURSTS": 2,
        "ROW_MISSES": 1,
        "TENSOR_INSTRUCTIONS": 1,
        "SCRATCHPAD_DMA": 128,
        "INSTRUCTIONS": 2 + 1 + 1 + 1,
    }


def test_padding_delays_the_request() -> None:
    box = "spm=0x20000000, run_bytes=16, count_x=1, count_y=1, spm_stride_x=16, spm_stride_y=48"
    pads = "pad_x_before=1, pad_x_after=1, pad_y_after=2"
    m = run_both(
        from_text(f"""
        padded: .descriptor load, dram=0xA0000000, {box}, {pads}
        _start:
            la       t0, padded
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """)
    )
    # 9 runs of 16 bytes, 8 of them padding: 8 cycles. Request at 10 + 4 + 8 = 22, until 46.
    assert m.cores.clock.tolist() == [46 + 40 + 2]


BOTH_LOAD = """
_start:
    csrr     a0, mhartid    # 1
    li       a1, 64         # 2: bytes of a load's descriptor
    mul      a0, a0, a1     # 6
    la       t0, first      # 8
    add      t0, t0, a0     # 9
    nmp.load t0             # begins at 17, issued at 18
    nmp.wait load, 0
    nmp.halt
"""


def test_two_cores_share_the_dram() -> None:
    text = load("first", "0xA0000000", 128) + load("second", "0xA0000400", 128) + BOTH_LOAD
    m = run_both(from_text(text, config=TWO))
    # Both ask at 21. Core 0 goes first: 21 + 20 + 8 = 49, data at 89. Core 1 finds the row open:
    # 49 + 8 = 57, data at 97. Then a wait and a halt.
    assert m.cores.clock.tolist() == [91, 99]
    assert counts(m)["WAIT_LOAD"] == (89 - 18) + (97 - 18)
    assert counts(m)["BUSY_LOAD"] == 28 + 8
    assert counts(m)["ROW_MISSES"] == 1


def test_two_cores_close_each_others_row() -> None:
    text = load("first", "0xA0000000", 128) + load("second", "0xA0000800", 128) + BOTH_LOAD
    m = run_both(from_text(text, config=TWO))
    # Core 1: 49 + 20 + 8 = 77, data at 117.
    assert m.cores.clock.tolist() == [91, 119]
    assert counts(m)["ROW_MISSES"] == 2


def test_a_long_transfer_gives_way_between_rows() -> None:
    text = load("first", "0xA0000000", 4096) + load("second", "0xA0004000", 64) + BOTH_LOAD
    m = run_both(from_text(text, config=TWO))
    # Core 0's first row: 21 + 20 + 32 * 4 = 169; it asks for the second one at 169. Core 1 has
    # asked at 21: 169 + 20 + 4 = 193, data at 233. Core 0: 193 + 20 + 128 = 341, data at 381.
    assert m.cores.clock.tolist() == [383, 235]
    assert counts(m)["ROW_MISSES"] == 3
    assert counts(m)["BURSTS"] == 65


def test_a_full_dma_queue_holds_the_core() -> None:
    text = load("first", "0xA0000000", 64) + "_start:\n"
    text += "la t0, first\nnmp.load t0\n" * 5 + "nmp.wait load, 0\nnmp.halt\n"
    m = run_both(from_text(text))
    # Transfers begin at 10, 21, 32, 43 at the earliest. The first asks at 14, done at 38, data at
    # 78. The next ones ask 4 after the one before is done: 42 to 46, 50 to 54, 58 to 62.
    # The fifth finds the queue full at 46 until 78; descriptor until 86, issued at 87; asks at
    # 90, done at 94, data at 134.
    assert m.cores.clock.tolist() == [134 + 2]
    assert counts(m)["WAIT_LOAD"] == (78 - 46) + (134 - 87)
    assert counts(m)["BUSY_LOAD"] == 24 + 4 * 4


FILL = "work: .descriptor fill, output=0x20000000, count=1600\n_start:\n"


def test_a_full_vector_queue_holds_the_core() -> None:
    text = FILL + "la t0, work\nnmp.fill t0\n" * 5 + "nmp.wait vector, 0\nnmp.halt\n"
    m = run_both(from_text(text))
    # A fill takes 4 + 1600 / 16 = 104. The first runs from 10 to 114, then 218, 322, 426. The
    # fifth waits from 46 until 114, is issued at 123, and done at 530.
    assert m.cores.clock.tolist() == [530 + 2]
    assert counts(m)["WAIT_VECTOR"] == (114 - 46) + (530 - 123)
    assert counts(m)["BUSY_VECTOR"] == 5 * 104


def test_a_wait_may_leave_some_outstanding() -> None:
    text = FILL + "la t0, work\nnmp.fill t0\n" * 3 + "nmp.wait vector, 2\nnmp.halt\n"
    m = run_both(from_text(text))
    assert m.cores.clock.tolist() == [114 + 2], "the first of three is done"


def test_units_work_in_parallel() -> None:
    text = load("first", "0xA0000000", 64) + FILL.replace("_start:\n", "")
    m = run_both(
        from_text(
            text
            + """
        _start:
            la       t0, first
            nmp.load t0             # asks at 14, done at 38, data at 78
            la       t0, work
            nmp.fill t0             # begins at 21, done at 125
            nmp.wait load, 0        # from 22 to 79
            nmp.wait vector, 0      # until 126
            nmp.halt
            """
        )
    )
    assert m.cores.clock.tolist() == [127]
    assert counts(m)["WAIT_LOAD"] == 78 - 22
    assert counts(m)["WAIT_VECTOR"] == 125 - 79


def test_a_barrier_takes_its_cycles() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            beqz  a0, meet          # core 0 arrives at 7: 1 + 3 + 2 + 1
            div   a1, a0, a0        # core 1 at 38: 1 + 1 + 33 + 2 + 1
        meet:
            li    t0, 0
            li    t1, 2
            nmp.barrier t0, t1      # 16 after the last
            nmp.halt
            """,
            config=TWO,
            barrier_layers=(0,),
        )
    )
    assert m.cores.clock.tolist() == [55, 55]
    assert m.barriers.cycle.tolist() == [54]
    assert counts(m) == {
        "CONTROL": 8 + 39,
        "BARRIER": (54 - 7) + (54 - 38),
        "INSTRUCTIONS": 6 + 7,
    }
    assert m.cores.previous_layer.tolist() == [0, 0]


def test_a_semaphore_takes_its_cycles() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            bnez  a0, take
            div   a1, a0, a0
            li    t0, 3
            li    t1, 1             # core 0: 37
            nmp.post t0, t1         # 38
            nmp.post t0, t1         # 39: release 8 later
            nmp.halt                # 40
        take:
            li    t0, 3
            li    t1, 2             # core 1: 1 + 3 + 2
            nmp.pend t0, t1         # 7, then waits until 47
            nmp.halt                # 48
            """,
            config=TWO,
        )
    )
    assert m.cores.clock.tolist() == [40, 48]
    assert m.shared.semaphores[0, 3] == 0
    assert int(m.layers.counts[1, CountColumn.SEMAPHORE]) == 40, "no layer was named"


def test_semaphores_release_lower_numbers_first() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            li    t0, 0
            li    t1, 1
            bnez  a0, take
            div   a1, a0, a0
            nmp.post t0, t1
            div   a1, a0, a0
            nmp.post t0, t1
            nmp.halt
        take:
            nmp.pend t0, t1
            nmp.halt
            """,
            config=device(3),
        )
    )
    # Core 0 posts at 37 (38 behind it: release 46), again at 71 (72: release 80).
    assert m.cores.clock.tolist() == [73, 47, 81]


def test_a_core_sees_what_an_earlier_one_wrote() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            la    t0, 0x10000000
            bnez  a0, other
            li    t1, 5             # core 0: 5
            sw    t1, 0(t0)
            nmp.halt
        other:                      # core 1: 6
            lw    a1, 0(t0)
            nmp.halt
            """,
            config=TWO,
        )
    )
    assert np.array(m.cores.registers)[1, 11] == 5


def test_nobody_sees_the_future() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            la    t0, 0x10000000
            li    t1, 5
            bnez  a0, other
            div   a1, a0, a0        # core 0 writes at 38
            sw    t1, 0(t0)
            nmp.halt
        other:                      # core 1 reads at 7
            lw    a1, 0(t0)
            nmp.halt
            """,
            config=TWO,
        )
    )
    assert np.array(m.cores.registers)[1, 11] == 0
