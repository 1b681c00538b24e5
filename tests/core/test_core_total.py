"""An instruction that a place does not know keeps that place from being imported.

A table with another row, or with its rows in another order, is planted in a process of its own
before anything derives from it. The processes are forked from one that has imported Numba.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiers import each_value

from nmpsim.isa.exhaustive import (
    IncompleteError,
    check_exhaustive,
    make_exhaustive_table,
    require_cases,
)

TESTS = Path(__file__).parent
BEGIN = """
import importlib, json, random, sys
import attrs
import nmpsim.isa.descriptors as descriptors
import nmpsim.isa.profiles as profiles
import nmpsim.isa.table as t
from nmpsim.isa.table import *

def make_row(mnemonic, known, **fields):
    (row,) = (row for row in t.INSTRUCTIONS if row.mnemonic == known)
    return attrs.evolve(row, mnemonic=mnemonic, **fields)
"""
MODULES = (
    "nmpsim.core.reference.engine",
    "nmpsim.core.reference.tensor",
    "nmpsim.core.compiled.scalar",
    "nmpsim.core.compiled.rv32im",
    "nmpsim.core.compiled.units",
    "nmpsim.core.compiled.contract",
    "nmpsim.core.compiled.event_queue",
    "nmpsim.core.compiled.tensor_kernels",
    "nmpsim.debugger.arithmetic",
    "nmpsim.debugger.instructions",
)
PLANT = """
t.INSTRUCTIONS = (*t.INSTRUCTIONS[:{where}], {row}, *t.INSTRUCTIONS[{where}:])
said = {{}}
for name in {modules}:
    try:
        importlib.import_module(name)
    except ValueError as error:
        said[name] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(said))
"""
SCALAR, RV32IM = "nmpsim.core.compiled.scalar", "nmpsim.core.compiled.rv32im"
REFERENCE = "nmpsim.core.reference.engine"
PLANTED = {
    "register": (
        'make_row("sh1add", "add", match=0x10 << 25 | 2 << 12 | 0x33)',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "compute_arithmetic"},
    ),
    "product": (
        'make_row("mulx", "mul")',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "compute_arithmetic"},
    ),
    "immediate": (
        'make_row("rori", "srai", match=0x30 << 25 | 5 << 12 | 0x13)',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "compute_arithmetic"},
    ),
    "branch": (
        'make_row("bodd", "beq", match=2 << 12 | 0x63)',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "is_branch_taken"},
    ),
    "upper": (
        'make_row("luj", "lui", match=0x7B)',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "compute_upper"},
    ),
    "jump": (
        'make_row("jx", "jal", match=0x7B)',
        {REFERENCE: "INSTRUCTIONS", RV32IM: "compute_jump_target"},
    ),
    "fence": (
        'make_row("fence.x", "fence", match=0x200F)',
        {REFERENCE: "INSTRUCTIONS", SCALAR: "execute_system"},
    ),
    "system": (
        'make_row("sret", "mret", match=0x1020_0073)',
        {REFERENCE: "INSTRUCTIONS", SCALAR: "execute_system"},
    ),
    "csr": (
        'make_row("csrrx", "csrrwi", match=4 << 12 | 0x73)',
        {REFERENCE: "INSTRUCTIONS", SCALAR: "update_csr"},
    ),
    "synchronization": (
        'make_row("nmp.meet", "nmp.barrier", match=4 << 25 | 5 << 12 | 0x0B)',
        {
            REFERENCE: "INSTRUCTIONS",
            SCALAR: "execute_synchronization",
            "nmpsim.core.compiled.event_queue": "_RELEASES",
            "nmpsim.core.compiled.contract": "check_synchronization",
        },
    ),
    "tensor on the vector unit": (
        'make_row("nmp.twist", "nmp.fill", match=Unit.VECTOR << 25 | 7 << 12 | 0x0B)',
        {
            "nmpsim.core.reference.tensor": "COMPUTE",
            "nmpsim.core.compiled.tensor_kernels": "KERNEL_OF",
        },
    ),
    "tensor on the MAC array": (
        'make_row("nmp.twist", "nmp.gemm", match=Unit.MAC << 25 | 7 << 12 | 0x0B)',
        {
            "nmpsim.core.reference.tensor": "COMPUTE",
            "nmpsim.core.compiled.tensor_kernels": "KERNEL_OF",
        },
    ),
    "transfer": (
        'make_row("nmp.twist", "nmp.load", match=Unit.LOAD << 25 | 7 << 12 | 0x0B)',
        {
            "nmpsim.core.reference.tensor": "TRANSFERS",
            "nmpsim.core.compiled.tensor_kernels": "KERNEL_OF",
        },
    ),
}
"""Kind of row -> the row, and in each module the place that lacks it."""


SERVER = """
import io, json, os, signal, sys, traceback
import numba.core.registry, numpy.ma, tomllib

assert not any(name.partition(".")[0] == "nmpsim" for name in sys.modules)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        sys.stdout = output = io.StringIO()
        status = None
        try:
            exec(compile(json.loads(line), "<case>", "exec"), {"__name__": "__main__"})
        except SystemExit as ended:
            status = ended.code
        except BaseException:
            status = traceback.format_exc()
        sys.__stdout__.write(json.dumps([output.getvalue(), status]) + "\\n")
        sys.__stdout__.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"the process of a case has ended with status {status}")
"""
RunCode = Callable[[str], str]


@pytest.fixture(scope="module")
def run_in_process() -> Iterator[RunCode]:
    """Yield a function that runs code in a new process and returns its output."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=TESTS.parents[1], env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip

    def run(code: str) -> str:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(BEGIN + code) + "\n")
        server.stdin.flush()
        output, status = json.loads(server.stdout.readline())
        assert not status, f"{output}{status}"
        return output

    with server:
        yield run


def get_planted_places(case: tuple[str, str]) -> tuple[str, ...]:
    """Return the position of the planted row and the places that lack its entry."""
    kind, where = case
    return where, *map(".".join, PLANTED[kind][1].items())


@pytest.mark.parametrize(
    ("kind", "where"),
    each_value(
        [*((kind, "0") for kind in PLANTED), ("register", "len(t.INSTRUCTIONS)")],
        get_planted_places,
    ),
)
def test_an_unimplemented_row_fails_the_import(
    run_in_process: RunCode, kind: str, where: str
) -> None:
    row, places = PLANTED[kind]
    said = json.loads(run_in_process(PLANT.format(row=row, where=where, modules=MODULES)))
    mnemonic = row.split('"')[1]
    for module, place in places.items():
        identifier = mnemonic.replace(".", "_")
        expected = (
            f"IncompleteError: {module}.{place} has no entry for {name}"
            for name in (mnemonic, identifier)
        )
        assert said[module] in expected


@pytest.mark.parametrize(
    "row",
    [
        'make_row("lwu", "lw", match=6 << 12 | 0x03)',
        'make_row("sx", "sw", match=3 << 12 | 0x23)',
    ],
)
def test_loads_and_stores_need_no_entry(run_in_process: RunCode, row: str) -> None:
    """The columns of a row say all that the engines need to know of a load or store."""
    assert json.loads(run_in_process(PLANT.format(row=row, where="0", modules=MODULES))) == {}


def test_a_missing_row_fails_the_import(run_in_process: RunCode) -> None:
    code = """
t.INSTRUCTIONS = tuple(i for i in t.INSTRUCTIONS if i.mnemonic != "mulhsu")
try:
    import nmpsim.core.reference.engine
except ValueError as error:
    print(error)
"""
    place = "nmpsim.core.reference.engine.INSTRUCTIONS"
    assert run_in_process(code) == f"{place} has an entry too many: mulhsu\n"


def test_a_descriptor_without_footprint_fails_the_import(run_in_process: RunCode) -> None:
    code = """
address = next(word for word in descriptors.DESCRIPTORS["fill"] if word.address)
for missing in ("layout", "direction"):
    try:
        attrs.evolve(address, **{missing: None})
    except ValueError as error:
        print(error)
"""
    assert run_in_process(code) == 2 * "output: an address has a direction and a layout\n"


def test_facts_of_a_new_descriptor_hold_everywhere(run_in_process: RunCode) -> None:
    """Limits, bytes and cycles of another descriptor come from its row alone."""
    code = """
from collections import defaultdict
new = attrs.evolve(descriptors.DESCRIPTORS["fill"], name="twist")
descriptors.DESCRIPTORS["twist"] = new
import nmpsim
from nmpsim.isa.words import KINDS
from nmpsim.memory import checks, footprint
from nmpsim.timing import get_costs, work
kind, touches = KINDS["twist"], defaultdict(int)
words = [0, 1, 0x2000_0010, 9, 5]
print(checks.find_invalid_word(kind, words, 64, touches))
print(checks.find_invalid_word(kind, [0, 1, 0x2000_0011, 9, 5], 64, touches))
print(checks.find_invalid_word(kind, [0, 1, 0x2000_0010, 0, 5], 64, touches))
print(checks.find_invalid_word(kind, words, 33, touches))
touches = defaultdict(int)
footprint.compute_footprint(kind, words, touches)
print(touches[0, footprint.COUNT], touches[1, footprint.START], touches[1, footprint.RUN])
costs = get_costs(nmpsim.default_device())
busy = work.count_busy_cycles
print(busy(kind, words, costs) == busy(KINDS["fill"], words, costs) > 0)
"""
    assert run_in_process(code).split() == [
        "-1",
        "2",
        "3",
        "2",
        "1",
        str(0x2000_0010),
        "18",
        "True",
    ]


@pytest.mark.parametrize(
    ("descriptor", "profile", "module", "place"),
    [
        ("conv", "qnnpack", "nmpsim.core.reference.profiles", "BIASES"),
        ("conv", "qnnpack", "nmpsim.kernels.profiles", "scale_sums"),
        ("avgpool", "onednn", "nmpsim.core.reference.profiles", "AVERAGES"),
        ("avgpool", "onednn", "nmpsim.kernels.profiles", "compute_averages"),
        ("eltwise", "onednn", "nmpsim.core.reference.profiles", "PAIRS"),
        ("eltwise", "onednn", "nmpsim.kernels.profiles", "compute_binary"),
        ("rescale", "fbgemm", "nmpsim.core.reference.profiles", "RESCALES"),
        ("rescale", "fbgemm", "nmpsim.kernels.profiles", "rescale_values"),
    ],
)
def test_an_unimplemented_profile_fails_the_import(
    run_in_process: RunCode, descriptor: str, profile: str, module: str, place: str
) -> None:
    code = f"""
profiles.PROFILES_OF["{descriptor}"] += ("{profile}",)
try:
    import {module}
except ValueError as error:
    print(error)
"""
    expected = f"{module}.{place} has no entry for {profile}\n"
    assert run_in_process(code).lower() == expected.lower()


@pytest.mark.slow
def test_the_order_of_rows_has_no_meaning(run_in_process: RunCode) -> None:
    """What both engines are tested with holds for any order; so does what may be replayed."""
    code = """
import pytest
rows = list(t.INSTRUCTIONS)
t.INSTRUCTIONS = tuple(random.Random(5).sample(rows, len(rows)))
from nmpsim.core.instruction_tables import IS_ACCESS, OP
accesses = {"lb", "lh", "lw", "lbu", "lhu", "sb", "sh", "sw"}
assert {name for name, number in OP._asdict().items() if IS_ACCESS[number]} == accesses
files = [f"tests/core/test_core_{name}.py" for name in ("integer", "control", "random_programs")]
quiet = ["-W", "ignore:Module already", "-W", "ignore:overflow encountered:RuntimeWarning"]
sys.exit(pytest.main(["-qx", "-p", "no:cacheprovider", *quiet, *files]))
"""
    assert "passed" in run_in_process(code)


def test_incomplete_tables_raise_an_error() -> None:
    assert make_exhaustive_table("here", {"a": 1, "b": 2}, ("b", "a")) == {"a": 1, "b": 2}
    with pytest.raises(IncompleteError, match="here has no entry for b, c"):
        make_exhaustive_table("here", {"a": 1}, "abc")
    with pytest.raises(IncompleteError, match="here has an entry too many: z"):
        check_exhaustive("here", "az", "a")


def test_incomplete_chains_raise_an_error() -> None:
    class numbers:  # noqa: N801 - stands for a table
        one, two, three = range(3)

    def which(number: int) -> str:
        return "one" if number == numbers.one else "two" if number == numbers.two else "none"

    known = ("one", "two", "three")
    assert require_cases(known, ("one", "two"))(which) is which
    with pytest.raises(IncompleteError, match=r"which has no entry for three"):
        require_cases(known, known)(which)
    with pytest.raises(IncompleteError, match=r"which has an entry too many: two"):
        require_cases(known, ("one",))(which)
