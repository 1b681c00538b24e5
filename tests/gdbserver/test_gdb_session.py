"""Every packet on small programs, without gdb."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest
from gdb_clients import MemoryClient, connect
from small_sessions import (
    BARRIER,
    END,
    GET,
    HALT,
    ONLY_0,
    PUT,
    USE,
    WAIT_LOAD,
    WAIT_VECTOR,
    make_shell,
)

from nmpsim.gdbserver.breakpoints import MAX_BREAKPOINTS
from nmpsim.gdbserver.packet_table import PACKETS, make_packet_table
from nmpsim.gdbserver.registers import DEFINITIONS
from nmpsim.gdbserver.session import MAX_EDITS
from nmpsim.isa.table import HostRegister

LOOP = " li t0, 3\nagain:\n addi t0, t0, -1\n bnez t0, again\n"
STORE = " lui a0, 0x20000\n li a1, 7\n sw a1, 0(a0)\n lw a2, 0(a0)\n"
RAM, SCRATCHPAD, CONTROL = 0xA0000000, 0x20000000, 0x10000000


def start(text: str = LOOP + STORE + HALT, cores: int = 2) -> MemoryClient:
    return connect(make_shell(text, cores=cores))


def decode(reply: bytes | None) -> str:
    assert reply is not None
    return bytes.fromhex(reply.decode()).decode()


def address(client: MemoryClient, name: str) -> int:
    return client.session.debugger.bundle.symbols[name]


def test_the_first_stop_is_at_the_first_instruction() -> None:
    client = start()
    assert client.pc == address(client, "_start")
    assert client.ask("?") == b"T0520:%b;thread:1;core:0;" % (
        client.pc.to_bytes(4, "little").hex().encode()
    )


def test_features_are_exchanged() -> None:
    client = start()
    reply = client.ask("qSupported:multiprocess+;swbreak+;error-message+;xmlRegisters=riscv")
    assert reply is not None and b"ReverseStep+" in reply and b"PacketSize=8000" in reply
    assert client.ask("mffffffff,4") == b"E.there is no memory at 0xffffffff"
    assert client.ask("vCont?") == b"vCont;c;C;s;S;t"
    assert client.ask("vMustReplyEmpty") == b""
    assert client.ask("qTStatus") == b""


def test_documents_are_read_in_parts() -> None:
    client = start()
    text, done = b"", b"m"
    while done == b"m":
        reply = client.ask(f"qXfer:features:read:target.xml:{len(text):x},40")
        assert reply is not None
        done, text = reply[:1], text + reply[1:]
    registers = [*ElementTree.fromstring(text).iter("reg")]
    generic = {
        one.attrib["generic"]: one.attrib["name"] for one in registers if "generic" in one.attrib
    }
    assert generic == {"pc": "pc", "sp": "sp", "fp": "s0", "ra": "ra"}, "LLDB needs these names"
    assert [int(one.attrib["regnum"]) for one in registers] == list(DEFINITIONS)
    threads = client.ask("qXfer:threads:read::0,1000")
    assert threads is not None
    assert [one.attrib["name"] for one in ElementTree.fromstring(threads[1:])] == [
        "core 0", "core 1",
    ]  # fmt: skip
    regions = client.ask("qXfer:memory-map:read::0,1000")
    assert regions is not None
    starts = {int(one.attrib["start"], 0) for one in ElementTree.fromstring(regions[1:])}
    assert {RAM, SCRATCHPAD, CONTROL} < starts
    assert client.ask("qXfer:auxv:read::0,10") == b""
    assert client.ask("qXfer:features:read:other.xml:0,10") == b"E02"


def test_threads_are_cores() -> None:
    client = start()
    assert client.ask("qfThreadInfo") == b"m1,2"
    assert client.ask("qsThreadInfo") == b"l"
    assert client.ask("T2") == b"OK"
    assert client.ask("T3") == b"E03"
    assert client.ask("Hg2") == b"OK"
    assert client.ask("qC") == b"QC2"
    assert client.ask("Hg0") == client.ask("Hc-1") == b"OK"
    assert decode(client.ask("qThreadExtraInfo,2")) == "running, cycle 0"


def test_a_step_moves_the_chosen_core() -> None:
    client = start()
    first = client.pc
    for _ in range(2):
        reply = client.ask("vCont;s:2;c")
        assert reply is not None and b"thread:2;" in reply
    assert client.pc == first + 8
    assert client.ask("Hc2") == b"OK"
    reply = client.ask("bs")
    assert reply is not None and b"thread:2;" in reply and client.pc == first + 4
    client.ask("bs")
    assert client.pc == first
    assert b"replaylog:begin" in (client.ask("bs") or b"")


def test_scheduler_locking_is_reported_once_as_unsupported() -> None:
    client = start()
    client.ask("vCont;c;t:2")
    client.ask("vRun;")
    assert "locking" not in client.read_console()
    for expected in (1, 0):
        client.ask("vCont;c:2")
        assert client.read_console().count("scheduler-locking is not supported") == expected


def step_over(client: MemoryClient, breakpoint: str) -> None:
    """Execute the instruction at a breakpoint as gdb does."""
    thread = (client.ask("qC") or b"")[2:].decode()
    for packet in (f"z{breakpoint}", f"vCont;s:{thread}", f"Z{breakpoint}"):
        assert client.ask(packet) not in (b"", None)


@pytest.mark.parametrize("kind", [0, 1])
def test_breakpoints_stop_both_cores_in_both_directions(kind: int) -> None:
    client = start()
    at = address(client, "again")
    assert client.ask(f"Z{kind},{at:x},4") == b"OK"
    name = (b"swbreak:;", b"hwbreak:;")[kind]
    stops = []
    for _ in range(6):
        stops.append(client.ask("vCont;c") or b"")
        step_over(client, f"{kind},{at:x},4")
    assert all(name in stop for stop in stops)
    assert sorted(re.findall(rb"thread:(\d)", b"".join(stops))) == [b"1"] * 3 + [b"2"] * 3
    back = [client.ask("bc") or b"" for _ in range(6)]
    assert back == stops[::-1]
    assert client.ask(f"z{kind},{at:x},4") == b"OK"
    assert b"replaylog:end" in (client.ask("c") or b"")


def test_no_core_misses_a_breakpoint_while_gdb_steps_another() -> None:
    client = start("x:\n nop\n" + HALT, cores=3)
    at = address(client, "x")
    client.ask(f"Z0,{at:x},4")
    for thread in (1, 2, 3):
        assert b"swbreak:;20:%b;thread:%d;" % (
            at.to_bytes(4, "little").hex().encode(), thread
        ) in (client.ask("vCont;c") or b"")  # fmt: skip
        step_over(client, f"0,{at:x},4")


def test_a_breakpoint_of_the_debugger_is_left() -> None:
    client = start(cores=1)
    client.monitor(f"break address {address(client, 'again'):#x}")
    for _ in range(3):
        assert (client.ask("vCont;c") or b"").startswith(b"T05")
        assert client.pc == address(client, "again")
        assert "breakpoint 1 of nmpsim" in client.read_console()
    assert b"replaylog:end" in (client.ask("vCont;c") or b"")
    for _ in range(3):
        assert client.ask("bc") and client.pc == address(client, "again")
    assert b"replaylog:begin" in (client.ask("bc") or b"")


def test_a_violation_is_left_backwards() -> None:
    client = start(GET + USE + WAIT_VECTOR + PUT + END, cores=1)
    client.monitor("break hazard")
    assert (client.ask("vCont;c") or b"").startswith(b"T07")
    assert b"replaylog:begin" in (client.ask("bc") or b"")


def test_watchpoints_stop_before_the_access_and_backwards_after_it() -> None:
    client = start(cores=1)
    store = address(client, "_start") + 20
    assert client.ask(f"Z2,{SCRATCHPAD:x},4") == b"OK"
    assert b"watch:20000000;" in (client.ask("vCont;c") or b"") and client.pc == store
    assert "core 0 sw" in client.read_console()
    assert b"watch:20000000;" in (client.ask("vCont;s:1") or b""), "the watchpoint still exists"
    assert client.ask(f"z2,{SCRATCHPAD:x},4") == b"OK"
    client.ask("vCont;s:1")
    assert (client.pc, client.ask(f"m{SCRATCHPAD:x},1")) == (store + 4, b"07")
    assert client.ask(f"Z3,{SCRATCHPAD:x},4") == b"OK"
    assert b"rwatch:20000000;" in (client.ask("vCont;c") or b"") and client.pc == store + 4
    assert client.ask(f"z3,{SCRATCHPAD:x},4") == b"OK"
    assert client.ask(f"Z4,{SCRATCHPAD:x},4") == b"OK"
    reply = client.ask("bc")
    assert b"awatch:20000000;" in (reply or b"") and client.pc == store + 4
    assert client.ask("bc") == reply, "the run does not move before the access is undone"
    client.ask("bs")
    assert (client.pc, client.ask(f"m{SCRATCHPAD:x},1")) == (store, b"00")
    assert b"replaylog:begin" in (client.ask("bc") or b"")


def test_memory_is_read_and_written() -> None:
    client = start()
    assert client.ask(f"m{RAM:x},4") == b"00000000"
    assert client.ask(f"M{RAM + 1:x},2:1234") == b"OK"
    assert client.ask(b"X%x,2:\x7d\x03\x7d\x5d" % (RAM + 3)) == b"OK"
    assert client.ask(f"m{RAM:x},6") == b"001234237d00"
    assert client.ask(f"X{RAM:x},0:") == b"OK"
    assert client.ask(f"M{SCRATCHPAD:x},1:55") == b"OK"
    assert client.ask("Hg2") == b"OK"
    assert client.ask(f"m{SCRATCHPAD:x},1") == b"00"
    size = client.session.debugger.bundle.rw_bytes
    assert len(client.ask(f"m{RAM + size - 2:x},8") or b"") == 4, "up to the end of the memory"


def test_written_memory_and_registers_belong_to_a_position() -> None:
    client = start(cores=1)
    for _ in range(2):
        client.ask("vCont;s:1")
    here = client.session.debugger.position
    assert client.ask("P5=2a000000") == b"OK"
    assert client.ask(f"M{RAM:x},1:55") == b"OK"
    assert client.ask(f"M{SCRATCHPAD:x},1:66") == b"OK"
    assert client.session.debugger.position == here
    assert client.ask("p5") == b"2a000000"
    client.ask("bs")
    assert (client.ask("p5"), client.ask(f"m{RAM:x},1")) == (b"03000000", b"00")
    assert client.ask(f"m{SCRATCHPAD:x},1") == b"00"
    client.ask("vCont;s:1")
    assert (client.ask("p5"), client.ask(f"m{RAM:x},1")) == (b"2a000000", b"55")
    assert client.ask(f"m{SCRATCHPAD:x},1") == b"66"


def test_the_program_is_changed_from_the_start() -> None:
    client = start(cores=1)
    client.ask("vCont;s:1")
    start_address = address(client, "_start")
    assert client.ask(f"M{start_address:x},4:93020001") == b"OK", "li t0, 16"
    assert client.ask("p5") == b"10000000"
    client.ask("bs")
    assert client.ask("p5") == b"00000000"


def test_all_registers_are_written_together() -> None:
    client = start()
    values = client.ask("g") or b""
    assert len(values) == 33 * 8
    changed = values[:8] + b"01020304" + values[16:]
    assert client.ask(b"G" + changed) == b"OK"
    assert client.ask("g") == changed
    assert client.ask(b"G01000000" + values[8:]) == b"E16"


def test_csrs_are_read_and_written() -> None:
    client = start()
    mscratch, mhartid = 65 + 0x340, 65 + 0xF14
    client.ask("Hg2")
    assert client.ask(f"p{mhartid:x}") == b"01000000"
    assert client.ask(f"P{mscratch:x}=78563412") == b"OK"
    assert client.ask(f"p{mscratch:x}") == b"78563412"
    assert client.ask(f"P{mhartid:x}=05000000") == b"E16"


@pytest.mark.parametrize(
    "packet",
    [
        "P0=01000000", "P20=02000000", "P20=0100", "P99=00000000", "p99", "G00", "g0", "c100",
        "mzz,4", "m0", "m100000000,4", "M20000000,2:00", "M20000000,1:0", "M10000000,1:01",
        "M50000000,1:01", "M2001ffff,2:0101", "X20000000,1:}", "Z5,0,4", "Z2,0,0", "Zx", "z9,0,0",
        "vCont;", "vCont;x", "vCont;s:zz", "vCont;s:40", "Hgx", "T", "qRcmd,0", "qRcmd,xx",
        "qXfer:features:read:target.xml:0", "QStartNoAckMode:1", "vKill;x",
    ],
)  # fmt: skip
def test_invalid_packets_get_an_error(packet: str) -> None:
    client = start()
    before = client.ask("g")
    reply = client.ask(packet)
    assert reply is not None and re.fullmatch(rb"E[0-9a-f]{2}", reply)
    assert client.ask("g") == before


def test_numbers_of_breakpoints_and_changes_are_limited() -> None:
    client = start()
    replies = {client.ask(f"Z0,{4 * i:x},4") for i in range(MAX_BREAKPOINTS)}
    assert replies == {b"OK"}
    assert client.ask("Z0,ffff0000,4") == b"E1c"
    client.session.breakpoints.remove_all()
    assert client.session.debugger.breakpoints == []
    client.ask(f"M{RAM:x},1:55")
    (edit,) = client.session.debugger.edits
    edit = attrs.evolve(edit, pieces=edit.pieces * MAX_EDITS)
    client.session.debugger.apply_edits((edit,))
    assert client.ask(f"M{RAM:x},1:56") == b"E1c"


def test_the_end_can_be_left_backwards() -> None:
    client = start()
    assert b"replaylog:end" in (client.ask("vCont;c") or b"")
    assert "the end: cycle" in client.read_console()
    assert b"replaylog" not in (client.ask("bs") or b"replaylog")
    client.ask("vCont;c")
    assert client.ask("vCont;c") == client.ask("?") == b"W00"
    assert client.session.debugger.position <= 1, "the next client begins at the start"


@pytest.mark.parametrize(
    ("text", "signal", "message"),
    [
        (" ebreak\n", 5, "breakpoint"),
        (" ecall\n", 12, "environment call"),
        (" lw a0, 1(zero)\n", 10, "misaligned"),
        (" lw a0, 0(zero)\n", 11, "fault"),
        (" .word 0\n", 4, "illegal instruction"),
        (ONLY_0 + BARRIER + "other:\n" + HALT, 6, "no core can continue"),
    ],
)
def test_traps_are_signals_with_text(text: str, signal: int, message: str) -> None:
    client = start(text + HALT)
    reply = client.ask("vCont;c") or b""
    assert reply.startswith(b"T%02x" % signal)
    assert message in client.read_console()
    assert client.ask("vCont;c") == b"X%02x" % signal


def test_the_console_and_the_exit_status_are_reported() -> None:
    store = "".join(f" li a1, {ord(c)}\n sw a1, 0(a0)\n" for c in "hi\n")
    client = start(f" li a0, {HostRegister.CONSOLE:#x}\n{store} li a1, 3\n sw a1, 4(a0)\n", cores=1)
    assert b"replaylog:end" in (client.ask("vCont;c") or b"")
    assert "core 0 prints: hi\n" in client.read_console()
    client.ask("bs")
    assert client.ask("vCont;c") and "prints" not in client.read_console()
    assert client.ask("vCont;c") == b"W03"


def test_a_client_that_connects_after_a_trap_gets_its_signal() -> None:
    shell = make_shell(" .word 0\n")
    shell.debugger.run_to_end()
    assert (connect(shell).ask("?") or b"").startswith(b"T04")


def test_a_trap_can_be_repaired() -> None:
    client = start(" lw a0, 0(a1)\n" + HALT, cores=1)
    assert (client.ask("c") or b"").startswith(b"T0b")
    assert client.ask(f"Pb={RAM.to_bytes(4, 'little').hex()}") == b"OK"
    assert b"replaylog:end" in (client.ask("c") or b"")


def test_a_violation_of_the_contract_is_a_signal() -> None:
    client = start(GET + USE + WAIT_VECTOR + PUT + END, cores=1)
    reply, text = client.monitor("break hazard")
    assert reply == b"OK" and "hazard" in text
    assert (client.ask("vCont;c") or b"").startswith(b"T07")
    assert "no nmp.wait load between them" in client.read_console()
    client = start(GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + END, cores=1)
    client.monitor("break hazard")
    assert b"replaylog:end" in (client.ask("vCont;c") or b"")


def test_monitor_executes_commands() -> None:
    client = start()
    assert client.monitor("cores")[1].count("\n") == 3
    reply, text = client.monitor("foo")
    assert reply == b"E16" and "error[DEBUG001]" in text
    reply, text = client.monitor("step instruction")
    assert reply == b"OK" and "maintenance flush register-cache" in text
    assert "flush" not in client.monitor("where")[1]
    assert client.monitor("") == (b"OK", "")
    assert client.monitor("quit")[0] == b"OK" and client.session.has_ended


def test_commands_need_the_secret_to_access_files() -> None:
    client = connect(make_shell(HALT), secret="word")
    for line in ("core a.npz", "reference a.npz", "export a.json", "patch a.json"):
        reply, text = client.monitor(line)
        assert reply == b"E16" and "needs permission" in text
    assert client.monitor("secret wrong")[0] == b"E16"
    assert not client.session.can_access_files
    assert client.monitor("secret word")[0] == b"OK"
    assert client.session.can_access_files
    assert not connect(make_shell(HALT)).session.permit_file_access("")


def test_a_session_ends_or_restarts() -> None:
    for packet, reply in (("k", None), ("vKill;1", b"OK"), ("D", b"OK")):
        client = start()
        assert client.ask(packet) == reply and client.session.has_ended
    client = start()
    assert client.ask("!") == b"OK"
    first = client.ask("?")
    client.ask("c")
    assert client.ask("vKill;1") == b"OK" and not client.session.has_ended
    assert client.ask("vRun;") == first
    client.ask("c")
    assert client.ask("R00") is None and client.ask("?") == first
    assert client.ask("qAttached") == client.ask("qAttached:1") == b"1"
    assert client.ask("qSymbol::") == b"OK"


def test_a_run_is_interrupted() -> None:
    client = start("again:\n j again\n")
    client.interrupt()
    assert (client.ask("vCont;c") or b"").startswith(b"T02")
    position = client.session.debugger.position
    assert position > 0
    client.ask("Z0,0,4")
    client.interrupt()
    assert (client.ask("bc") or b"").startswith(b"T02")
    assert client.session.debugger.position == position


def test_a_time_limit_interrupts_a_run() -> None:
    client = start("again:\n j again\n")
    client.session._time_limit = 0.0
    assert (client.ask("vCont;c") or b"").startswith(b"T02")


def test_every_packet_is_tried() -> None:
    folder = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_gdb_*.py"))
    for packet in PACKETS:
        assert packet.prefix.decode().rstrip(":,;") in text, packet.form


def test_fields_of_packets_are_parameters() -> None:
    for packet in PACKETS:
        _, *parameters = signature(packet.function).parameters.values()
        fields = re.findall(r"<(\w+)>", packet.form)
        required = [one.name for one in parameters if one.default is one.empty]
        assert set(required) <= set(fields) <= {one.name for one in parameters}, packet.form


def test_the_page_lists_all_packets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gdb.md").read_text(encoding="utf-8")
    assert page.endswith(f"\n\n{make_packet_table()}")
