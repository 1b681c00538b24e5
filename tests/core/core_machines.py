"""Small machines for tests: code and data as text or words, run on both engines and compared."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.engine import Engine
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.state import Machine, Outcome, make_machine, start_cores
from nmpsim.isa.codec import BY_MNEMONIC, encode
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE
from nmpsim.timing import Costs, get_costs

SPM = SCRATCHPAD_BASE
IMAGE_BASE = 0x8000_0000
RAM_BASE = 0xA000_0000
ENGINES = ("reference", "compiled")
AT_ONCE = "at once"
"""The compiled engine with some threads, following a recording where there is one."""
COMPILED_WAYS = ("compiled",) if IS_JIT_DISABLED else ("compiled", AT_ONCE)
"""Where nothing is compiled nothing is recorded either: both ways would be the same one."""
FOREVER = 1 << 40


@functools.cache
def engine(name: str) -> Engine:
    return make_threaded_engine(3) if name == AT_ONCE else make_engine(name)


def make_threaded_engine(threads: int) -> Engine:
    """Build a compiled engine that starts its workers even for the shortest run."""
    from nmpsim.core.compiled.engine import CompiledEngine

    made = CompiledEngine(threads)
    made._workers.min_seconds = 0.0
    return made


def device(cores: int = 1, **settings: int) -> DeviceConfig:
    return attrs.evolve(default_device(), cores_count=cores, **settings)


@attrs.frozen(kw_only=True)
class Program:
    """Initial state of a machine: image, memories, device, layers and barriers."""

    image: bytes
    entry: int = IMAGE_BASE
    image_base: int = IMAGE_BASE
    ram_bytes: int = 1 << 16
    config: DeviceConfig = attrs.field(factory=device)
    layer_channels: Sequence[int] = (1,)
    barrier_layers: Sequence[int] = ()
    scratchpad: bytes | npt.NDArray[np.int8] = b""
    """Initial contents of the scratchpad of every core."""
    ram: bytes = b""
    formulas: bytes = b""
    """Text of the program's own formulas."""

    def machine(self) -> Machine:
        image = np.frombuffer(bytearray(self.image), np.uint8)
        m = make_machine(
            self.config,
            image,
            self.image_base,
            RAM_BASE,
            self.ram_bytes,
            self.layer_channels,
            self.barrier_layers,
            self.formulas,
        )
        contents = np.frombuffer(bytes(self.scratchpad), np.uint8)
        m.scratchpad[:, : contents.size] = contents
        m.ram[: len(self.ram)] = np.frombuffer(self.ram, np.uint8)
        start_cores(m, self.entry)
        return m


def from_text(text: str, **settings: object) -> Program:
    """Assemble a program whose entry is ``_start``, or else its first instruction."""
    if "_start:" not in text:
        text = "_start:\n" + text
    bundle = parse_bundle(assemble(text).build_bundle())
    entry = next(step.entry for step in bundle.metadata.steps)
    memory = {"image": bytes(bundle.image), "image_base": bundle.image_base, "entry": entry}
    return Program(**memory, **settings)  # type: ignore[arg-type]


def words(*instructions: tuple[str, Mapping[str, int]]) -> bytes:
    return b"".join(encode(name, fields).to_bytes(4, "little") for name, fields in instructions)


def load_address(register: int, value: int) -> list[tuple[str, dict[str, int]]]:
    """Return the two instructions of ``la``."""
    low = (value & 0xFFF) - ((value & 0x800) << 1)
    return [
        ("lui", {"rd": register, "imm": (value - low) & 0xFFFF_F000}),
        ("addi", {"rd": register, "rs1": register, "imm": low}),
    ]


HALT = ("nmp.halt", dict[str, int]())


def from_descriptors(*jobs: tuple[str, Mapping[str, int | str]], **settings: object) -> Program:
    """Build a program that executes tensor instructions in sequence and then halts.

    Words of a descriptor that are not named are 0.
    """
    records = [descriptor_bytes(BY_MNEMONIC[mnemonic].descriptor, d) for mnemonic, d in jobs]
    code: list[tuple[str, Mapping[str, int]]] = []
    address = IMAGE_BASE + 4 * (3 * len(jobs) + 1)
    for (mnemonic, _), record in zip(jobs, records, strict=True):
        code += [*load_address(5, address), (mnemonic, {"rs1": 5})]
        address += len(record)
    return Program(image=words(*code, HALT) + b"".join(records), **settings)  # type: ignore[arg-type]


def descriptor_bytes(name: str | None, values: Mapping[str, int | str]) -> bytes:
    """Encode a descriptor as it is stored in memory; values may be invalid."""
    record = DESCRIPTORS[name or ""]
    assert set(values) <= {word.name for word in record}
    data = b""
    for word in record:
        value = values.get(word.name, 0)
        number = word.choices.index(value) if isinstance(value, str) else int(value)
        data += (number & 0xFFFF_FFFF).to_bytes(4, "little")
    return data


def record_and_replay(engine: Engine, machine: Machine, costs: Costs) -> bool:
    """Record and replay a program; return False if it cannot be recorded or depends on data."""
    recorded = engine.record(machine, costs)
    if recorded is None or not engine.replay(machine, recorded, lambda _: None):
        return False
    recorded.set_timing(machine)
    return True


def run(
    name: str, program: Program, turns: int = FOREVER, stop_at_layers: bool = False
) -> tuple[Outcome, Machine]:
    m, costs = program.machine(), get_costs(program.config)
    if name == AT_ONCE:
        if record_and_replay(engine(name), m, costs):
            return Outcome.DONE, m
        m = program.machine()
    while (outcome := engine(name).run(m, costs, turns, stop_at_layers)) == Outcome.PAUSED:
        if turns != FOREVER:
            break
    return outcome, m


def run_both(program: Program, expect: Outcome | None = Outcome.DONE) -> Machine:
    """Run on both engines in all variants, assert equal results, and return the machine."""
    outcome, m = run("reference", program)
    for name in COMPILED_WAYS:
        other_outcome, other = run(name, program)
        assert_same(m, other)
        assert outcome == other_outcome
    assert expect is None or outcome == expect, (outcome, m.shared.trap)
    return m


def assert_same(a: Machine, b: Machine) -> None:
    for name, mine, theirs in zip(a._fields, a, b, strict=True):
        if mine.tobytes() == theirs.tobytes():
            continue
        for field in mine.dtype.names or ():
            np.testing.assert_array_equal(mine[field], theirs[field], err_msg=f"{name}.{field}")
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def registers(m: Machine, core: int = 0) -> npt.NDArray[np.uint32]:
    values: npt.NDArray[np.uint32] = m.cores.registers[core].view(np.uint32)
    return values
