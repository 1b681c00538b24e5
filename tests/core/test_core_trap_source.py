"""Reports of runs that stop early name the function and the source line."""

from pathlib import Path

import attrs
import pytest

from nmpsim.bundle import parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.core.limits import Limits
from nmpsim.report.json import to_json
from nmpsim.report.read import decode_report

FIR = Path(__file__).parents[1] / "debuginfo" / "programs" / "fir.elf"
CONFIG = attrs.evolve(default_device(), cores_count=1)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_cycle_limit_names_function_and_line(engine: str) -> None:
    device = Device(CONFIG, engine=engine)
    report = device.run(read_bundle(FIR), {}, limits=Limits(max_cycles=200))
    assert report.trap is not None
    found = report.trap
    assert (found.function, found.file, found.file_line) == ("multiply", "fir.c", 8)
    assert found.describe_source() == "multiply (fir.c:8)"
    assert decode_report(to_json(report)).trap == found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("_start: nop\nbad: lw a0, 1(x0)\n", "trap"),
        ("_start: lui a1, 0x20000\nbad: lw a0, 0(a1)\nnmp.halt\n", "contract"),
    ],
)
def test_traps_and_violations_in_assembly_name_the_label(text: str, kind: str) -> None:
    bundle = parse_bundle(assemble(text, "t.s", CONFIG.settings()).build_bundle())
    report = Device(CONFIG, engine="reference").run(bundle, {})
    assert report.trap is not None
    assert (report.trap.kind, report.trap.function, report.trap.file) == (kind, "bad", None)
    if kind == "contract":
        assert report.contract.violation is not None
        assert report.contract.violation.function == "bad"
