"""Where the host's time goes in an inference: samples of ``perf``, by part of nmpsim.

A process of its own runs the bundle; ``perf`` knows no names in compiled kernels, so that process
writes down where its functions are.
"""

from __future__ import annotations

import bisect
import io
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.kernels import entries
from nmpsim.kernels.machine_code import ENTRY, load_object_file

INFERENCES = 20
PARTS = (
    (
        r"kernels\.movement|compiled\.(copies|tensor_kernels\.(load|store))|kernels\.copy",
        "copies of transfers",
    ),
    (
        r"^(products|excess|gather|pack|bounds|energy)|kernels\.(microkernel|weight_packing)",
        "sums of products",
    ),
    (
        r"^(sums|rescales(_within)?)$|kernels\.(elementwise|unary|pool|depthwise)",
        "vector unit",
    ),
    (r"kernels\.|^requantize_", "results of sums, counts of saturated values"),
    (r"timing\.|compiled\.(units|cycle_accounting|synchronization|transfers)", "timing"),
    (r"compiled\.|memory\.", "engine: instructions, checks, turns"),
)
"""What a function belongs to, by patterns of its name; the first one that fits."""
REST = "Python, NumPy: inputs, host operations, report"


def host_time(bundle: Path, image: Path, folder: Path) -> dict[str, float]:
    """Share of each part; nothing if there is no ``perf`` or it may not look."""
    if shutil.which("perf") is None:
        return {}
    record, seen = folder / "perf.data", folder / "seen.json"
    child = [sys.executable, __file__, str(bundle), str(image), str(seen)]
    asked = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-F", "4000", "-o", str(record)]
    if subprocess.run([*asked, *child], capture_output=True).returncode != 0:
        return {}
    script = ["perf", "script", "-i", str(record), "-F", "time,ip"]
    samples = subprocess.run(script, capture_output=True, text=True).stdout
    return shares(samples, json.loads(seen.read_text()))


def shares(samples: str, seen: dict[str, Any]) -> dict[str, float]:
    """Share of each part among the samples that were taken while inferences ran."""
    functions = sorted(map(tuple, seen["functions"]))
    starts = [start for start, _, _ in functions]
    counted: Counter[str] = Counter()
    for line in samples.splitlines():
        stamp, address = line.split()
        if not seen["begin"] <= float(stamp.rstrip(":")) <= seen["end"]:
            continue
        where = int(address, 16)
        start, size, name = functions[max(bisect.bisect(starts, where) - 1, 0)]
        counted[part_of(name) if start <= where < start + size else REST] += 1
    return {part: count / counted.total() for part, count in counted.most_common()}


def part_of(name: str) -> str:
    """Return the part that a compiled function belongs to."""
    return next((part for pattern, part in PARTS if re.search(pattern, name)), REST)


def plain_name(mangled: str) -> str:
    """``core.compiled.engine.run`` of a mangled name; that of vector code is plain already."""
    names, rest = [], mangled.removeprefix("cfunc.").removeprefix("_ZN")
    while found := re.match(r"\d+", rest):
        begin = found.end()
        names.append(rest[begin : begin + int(found[0])])
        rest = rest[begin + int(found[0]) :]
    return ".".join(names).removeprefix("nmpsim.") or mangled.removeprefix("nmpsim_")


def functions_of(code: bytes, entry: int) -> Iterator[tuple[int, int, str]]:
    """Address, bytes and name of each function of an object file, whose entry lies there."""
    from elftools.elf.elffile import ELFFile

    table = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    moved = entry - table.get_symbol_by_name(ENTRY)[0]["st_value"]
    for symbol in table.iter_symbols():
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
            yield symbol["st_value"] + moved, symbol["st_size"], plain_name(symbol.name)


def run_inferences(bundle: Bundle, image: dict[str, Any]) -> tuple[float, float]:
    """Begin and end of some inferences, after one that records and one that proves layers whole."""
    device = nmpsim.Device(nmpsim.get_device(bundle), threads=1)
    for _ in range(2):
        device.run(bundle, image)
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    for _ in range(INFERENCES):
        device.run(bundle, image)
    return begin, time.clock_gettime(time.CLOCK_MONOTONIC)


def main() -> None:
    """Run inferences, then write down when, and where the compiled functions are."""
    import numpy as np

    loaded: list[tuple[bytes, int]] = []

    def noted(code: bytes) -> int:
        address = load_object_file(code)
        loaded.append((code, address))
        return address

    entries.load_object_file = noted
    bundle, image, seen = map(Path, sys.argv[1:])
    with np.load(image) as archive:
        begin, end = run_inferences(nmpsim.load(bundle), dict(archive))
    functions = [function for code, entry in loaded for function in functions_of(code, entry)]
    seen.write_text(json.dumps({"begin": begin, "end": end, "functions": functions}))


if __name__ == "__main__":
    main()
