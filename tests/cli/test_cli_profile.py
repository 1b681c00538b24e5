"""``nmpsim run --profile`` and ``--coverage``, and functions in ``--trace``."""

import json
from pathlib import Path
from typing import Any

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device

FIR = Path(__file__).parents[1] / "debuginfo" / "programs" / "fir.elf"


def test_command_writes_profile_coverage_and_functions(nmpsim_cli: Any, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("p.json", "c.info", "t.json")]
    options = [
        word
        for pair in zip(("--profile", "--coverage", "--trace"), paths, strict=True)
        for word in pair
    ]
    assert nmpsim_cli("run", FIR, *options).exit_code == 0
    document = json.loads(paths[0].read_text())
    assert {"name": "fir", "file": "fir.c", "line": 12} in document["shared"]["frames"]
    assert paths[1].read_text().startswith("TN:\nSF:fir.c\n")
    events = json.loads(paths[2].read_text())["traceEvents"]
    slices = [one for one in events if one["ph"] == "X" and one["pid"] == 10]
    assert [one["name"] for one in slices].count("fir") == 8


def test_coverage_needs_source_lines(nmpsim_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    program = assemble("_start: nmp.halt\n", "t.s", default_device().settings())
    path.write_bytes(program.build_bundle())
    result = nmpsim_cli("run", path, "--coverage", tmp_path / "c.info")
    assert (result.exit_code, "error[LINE001]" in result.stderr) == (2, True)
