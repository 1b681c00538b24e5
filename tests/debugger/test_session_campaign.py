"""Random sessions: changes, moves and questions in any order, against a fresh debugger.

That one gets the same list of changes before anything happens and goes straight to the place.

The list itself is held against bytes that the test works out, and a run to the end against the
device on the bundle with the exported patch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import Phase, given, note
from hypothesis import strategies as st
from small_sessions import (
    BARRIER,
    END,
    FAR,
    GET,
    HALT,
    ONLY_0,
    PUT,
    TABLES,
    TWO_CORES,
    USE,
    WAIT_LOAD,
    WAIT_STORE,
    WAIT_VECTOR,
)
from tiers import examples

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.bundle.patch import apply_patch
from nmpsim.checking.hazards import find_hazards
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.edits import build_patch
from nmpsim.debugger.snapshots import DEFAULT_BUDGET_MIB
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import decode

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
NOP = 0x13
MAX_CYCLES = 60_000
Inputs = Mapping[str, np.ndarray[Any, Any]]
POST, PEND = (f" li t3, 1\n li t4, 1\n nmp.{word} t3, t4\n" for word in ("post", "pend"))
MAKE = GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + WAIT_STORE
CODES = (
    ONLY_0 + MAKE + MAKE + "other:" + END,
    ONLY_0 + MAKE + BARRIER + " j done\nother:\n" + BARRIER + FAR + WAIT_LOAD + "done:" + HALT,
    ONLY_0 + MAKE + POST + " j done\nother:\n" + PEND + FAR + WAIT_LOAD + POST + "done:" + HALT,
)
DEVICES = (
    attrs.evolve(TWO_CORES, limits_cycles=MAX_CYCLES),
    attrs.evolve(TWO_CORES, cores_count=4, scratchpad_bytes=1 << 15, limits_cycles=MAX_CYCLES),
)


@functools.cache
def program(number: int) -> tuple[Bundle, Inputs]:
    """Return random assembly or the digits network on four cores, with inputs."""
    if number < len(CODES):
        source = TABLES + "_start:\n" + CODES[number]
        image = assemble(source, "test.s", DEVICES[0].settings()).build_bundle()
        return parse_bundle(image), {"from": np.arange(-128, 128, dtype=np.int8)}
    lir, npz = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    bundle = parse_bundle(nmpsim.compile(lir, npz, device=DEVICES[1], tiling="layer").image)
    return bundle, {"data": np.load(DIGITS / "images" / "7.npy")}


def make_shell(number: int, budget_mib: int) -> Shell:
    bundle, inputs = program(number)
    config = DEVICES[number >= len(CODES)]
    debugger = Debugger(bundle, inputs, config=config, budget_mib=budget_mib)
    return Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))


@functools.cache
def generate_code(number: int) -> tuple[tuple[int, str], ...]:
    """Return address and mnemonic of each synchronization or tensor instruction."""
    bundle, _ = program(number)
    found = []
    for start, end in bundle.text:
        for at in range(start, end, 4):
            word = int.from_bytes(bundle.image[at - bundle.image_base :][:4].tobytes(), "little")
            decoded = decode(word)
            if decoded is not None and decoded.instruction.mnemonic.startswith("nmp."):
                found.append((at, decoded.instruction.mnemonic))
    return tuple(found)


@attrs.define
class Session:
    """Debugging session and the bytes that its changes should produce."""

    number: int
    random: Random
    shell: Shell
    expected: list[tuple[int, int, bytes]] = attrs.field(factory=list)
    """Position, address and bytes of the edits that the test knows."""
    lines: list[str] = attrs.field(factory=list)
    breakpoints: list[str] = attrs.field(factory=list)

    @property
    def debugger(self) -> Debugger:
        return self.shell.debugger

    def change(self) -> None:
        """Make one random change."""
        draw = self.random.random()
        if draw < 0.1:
            self.expected.clear()
            return self.do("revert")
        if draw < 0.45:
            return self.replace_code()
        if draw < 0.75 or self.number < len(CODES):
            return self.set_element()
        layer = self.random.choice(["conv1", "conv2", "fc"])
        line = self.random.choice(
            [
                f"change {layer} out_post {self.random.randint(10, 18)}",
                f"change {layer} bias {self.random.randint(0, 9)} {self.random.randint(-99, 99)}",
                f"change {layer} scale {self.random.choice([0.01, 0.02, 0.05])}",
                f"change {layer} clip_high {self.random.randint(-20, 127)}",
            ]
        )
        count = len(self.debugger.edits)
        with suppress(UserError):  # the layer is never reached, or cannot have that
            self.do(line)
        for edit in self.debugger.edits[count:]:
            self.expected += [(0, address, now) for address, now in edit.pieces]
        return None

    def replace_code(self) -> None:
        """Replace an instruction or a byte of an instruction."""
        at, mnemonic = self.random.choice(generate_code(self.number))
        is_plain = mnemonic in ("nmp.wait", "nmp.post") or self.random.random() < 0.3
        if is_plain:
            now = NOP.to_bytes(4, "little")
            self.do(f"set {at:#x} {NOP} 4")
        else:
            now = bytes([self.random.randrange(256)])
            at += self.random.randrange(4)
            self.do(f"set {at:#x} {now[0]}")
        self.expected.append((0, at, now))

    def set_element(self) -> None:
        tensors = [layer.output for layer in self.debugger.layers]
        tensor = self.random.choice([*tensors, *self.debugger.bundle.metadata.inputs])
        at = [self.random.randrange(n) for n in tensor.shape]
        value = self.random.randint(-128, 127)
        here = self.debugger.position
        self.do(f"set {tensor.name} {' '.join(map(str, at))} {value}")
        dtype = np.float32 if tensor.elem == "float" else np.int8
        flat = int(np.ravel_multi_index(at, tensor.shape)) * np.dtype(dtype).itemsize
        now = dtype(value).tobytes()
        self.expected.append((here, tensor.address + flat, now))
        start = tensor.address + flat - self.debugger.bundle.rw_base
        assert self.debugger.machine.ram[start : start + len(now)].tobytes() == now
        assert self.debugger.position == here

    def move(self) -> str:
        """Return a random command that changes the position."""
        count, layers = self.random.randint(1, 4), len(self.debugger.layers)
        unit = self.random.choice(["layer", "tile", "tensor", "instruction"])
        return self.random.choice(
            [
                f"step {unit} {count}",
                f"back {unit} {count}",
                "continue",
                "reverse",
                "restart",
                "until end",
                f"until layer {self.random.randrange(layers)}",
                f"until position {self.random.randint(0, 1500)}",
                f"until cycle {self.random.randint(0, 20_000)}",
            ]
        )

    def question(self) -> str:
        layer = self.random.choice(self.debugger.layers)
        at = " ".join(str(self.random.randrange(n)) for n in layer.output.shape)
        return self.random.choice(
            [
                "where", "layers", "cores", "registers 1", "saturation", *["hazards"] * 4,
                "eval hazards", f"tensor {layer.name}", f"tensor {layer.name} {at}",
                f"tensor {layer.name} memory", f"why {layer.name} {at}",
                f"readers {layer.name} {at}",
                f"memory {layer.output.address:#x} 32", f"layer {layer.name}", "code", "effect",
                *(["integers"] if self.number == len(CODES) else []),
            ]
        )  # fmt: skip

    def do(self, line: str) -> None:
        self.lines.append(line)
        self.shell.execute(line)

    def fresh(self) -> Shell:
        """Return a new shell with the same edits at the same position."""
        shell, debugger = make_shell(self.number, DEFAULT_BUDGET_MIB), self.debugger
        shell.debugger.apply_edits(debugger.edits)
        shell.debugger.go_to(max([debugger.position, *debugger.layer_ends.values()]))
        if debugger.trap is None:
            shell.debugger.go_to(debugger.position)
        else:
            shell.debugger.run_to_end()
        for line in self.breakpoints:
            shell.execute(line)
        return shell

    def ask_both(self, line: str) -> None:
        other = self.fresh()
        self.lines.append(line)
        assert execute(other, line) == execute(self.shell, line)
        assert execute(other, "where") == execute(self.shell, "where")

    def check_list(self) -> None:
        """Assert that the edits are the requested ones and produce the program in memory."""
        execution = self.debugger
        found = [(e.position, at, now) for e in execution.edits for at, now in e.pieces]
        assert found == self.expected
        image = execution.bundle.image.copy()
        for _, at, now in self.expected:
            start = at - execution.bundle.image_base
            if 0 <= start < image.size:
                image[start : start + len(now)] = np.frombuffer(now, np.uint8)
        np.testing.assert_array_equal(image, execution.machine.image)

    def check_patch(self) -> None:
        """Assert that a device runs the exported patch alike, if no element was set."""
        bundle, inputs = program(self.number)
        edits = self.debugger.edits
        if any(edit.position for edit in edits) or any(
            at >= bundle.rw_base for edit in edits for at, _ in edit.pieces
        ):
            return
        self.do("until end")
        patched = apply_patch(bytes(bundle.file), build_patch(bundle, edits), "patched")
        other = parse_bundle(patched)
        config = self.debugger.config
        report = nmpsim.Device(config, threads=1).run(other, inputs, strict=False)
        trap = self.debugger.trap
        assert (report.trap is None) == (trap is None)
        if trap is None:  # where one core traps others may have run ahead
            assert report.cycles == self.debugger.report().cycles
        found = [
            (one.position, one.description) for one in find_hazards(other, inputs, config).found
        ]
        assert found == [(one.position, one.description) for one in self.debugger.find_hazards()]


def execute(shell: Shell, line: str) -> str:
    """Execute a command; return its text and data, or the error."""
    try:
        result = shell.execute(line)
    except UserError as error:
        return str(error)
    return f"{result.text}\n{result.data!r}"


@given(st.integers(0, (1 << 32) - 1))
@examples(30, phases=[Phase.explicit, Phase.generate])
def test_a_session_equals_a_new_session(seed: int) -> None:
    """A smaller seed makes no smaller session: there is nothing to shrink."""
    random = Random(seed)
    number = random.choice([0, 1, 2, 0, 1, 2, 3])
    session = Session(number, random, make_shell(number, random.choice([1, DEFAULT_BUDGET_MIB])))
    try:
        if random.random() < 0.5:
            line = random.choice(["break hazard", "break saturation", "break stall > 40"])
            session.breakpoints.append(line)
            session.do(line)
        for _ in range(random.randint(8, 14)):
            draw = random.random()
            if draw < 0.3:
                session.change()
            elif draw < 0.6:
                session.ask_both(session.move())
            else:
                session.ask_both(session.question())
        session.check_list()
        session.check_patch()
    finally:
        note("\n".join((f"program {number}", *session.lines)))
