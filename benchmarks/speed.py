"""One inference of ResNet-50 on the device against native Int8 inference, in the same run.

The other side is onnxruntime with as many threads. A round takes the fastest of a few runs of each,
by turns, and gives one ratio; what is printed, as Markdown tables, is the median over the rounds.
All have run before: nmpsim twice, as the second run proves which layers are whole. A call of
``Device.run`` is timed from outside, until its report is read.

    pip install nmpsim[bench]
    python benchmarks/speed.py [--rounds 7] [--readme README.md]

With ``--readme`` all tables go to docs/speed.md, and the table of inferences to the README.

The programs and their input are among the reference files: ``shared`` beside the repository, or the
folder that ``NMPSIM_SHARED`` names.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from host_time import host_time
from resnet50_onnx import native, quantized_network
from resnet50_programs import PROGRAMS, compile_program, image, resnet50_folder

import nmpsim
from nmpsim.atomic import write_file
from nmpsim.bundle import Bundle
from nmpsim.kernels.cpu_features import TARGET

RUNS = 5
"""Runs of each side in a round."""
QUIET_SECONDS = 0.5
"""Between the sides: onnxruntime's threads spin for a while after a run, and take a core from what
comes next."""
THREADS = (1, 2)
REPOSITORY = Path(__file__).resolve().parents[1]
TABLES_PAGE = REPOSITORY / "docs" / "speed.md"
"""The page that shows every table."""
BEGIN, END = "<!-- speed -->\n", "<!-- end of speed -->\n"
HOSTS = "| ratios by host: kernels, processor |"
"""How the table begins to which each kind of host adds a row."""
MEMORY = (
    "import sys, numpy, nmpsim;"
    "bundle = nmpsim.load(sys.argv[1]);"
    "nmpsim.Device().run(bundle, dict(numpy.load(sys.argv[2])));"
    "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
)


@attrs.frozen
class Loaded:
    """A program that has run once."""

    title: str
    path: Path
    compile_seconds: float
    first_ms: float
    """Load, and the first inference."""
    runs: Mapping[int, Callable[[], Any]]
    """One inference, by the number of threads."""


def milliseconds(work: Callable[[], Any]) -> float:
    """How long something takes."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1e3


def fastest(run: Callable[[], Any]) -> Iterator[float]:
    """Milliseconds of the fastest of a few runs, again and again."""
    while True:
        time.sleep(QUIET_SECONDS)
        yield min(milliseconds(run) for _ in range(RUNS))


def infer(device: nmpsim.Device, bundle: Bundle, inputs: Mapping[str, Any]) -> object:
    """One inference, with the report of every layer: that is made when it is read."""
    return device.run(bundle, inputs).layers[0]


def load_programs(folder: Path) -> list[Loaded]:
    """Compile and load every program, and run it once."""
    inputs = image()
    loaded = []
    for program in PROGRAMS:
        path, seconds = compile_program(program, folder)
        infer(nmpsim.Device(threads=1), nmpsim.load(path), inputs)  # kernels are compiled, or read
        first = milliseconds(
            lambda path=path: infer(nmpsim.Device(threads=1), nmpsim.load(path), inputs)
        )
        bundle, runs = nmpsim.load(path), {}
        for threads in THREADS:
            runs[threads] = functools.partial(infer, nmpsim.Device(threads=threads), bundle, inputs)
            runs[threads]()
            runs[threads]()
        loaded.append(Loaded(program.title, path, seconds, first, runs))
    return loaded


@attrs.frozen
class Compared:
    """Medians of a program's inferences and of native ones, on some threads."""

    title: str
    threads: int
    ours_ms: float
    native_ms: float
    ratio: float
    """The median of the rounds' ratios."""


def compare(programs: list[Loaded], network: Path, rounds: int) -> list[Compared]:
    """Time all programs on each number of threads, by turns with native inference."""
    compared = []
    for threads in THREADS:
        theirs = fastest(native(network, threads))
        sides = {program.title: fastest(program.runs[threads]) for program in programs}
        taken = [
            (next(theirs), {t: next(side) for t, side in sides.items()}) for _ in range(rounds)
        ]
        other = statistics.median(native_ms for native_ms, _ in taken)
        for title in sides:
            ours = statistics.median(times[title] for _, times in taken)
            ratio = statistics.median(times[title] / native_ms for native_ms, times in taken)
            compared.append(Compared(title, threads, ours, other, ratio))
    return compared


def times_table(compared: list[Compared]) -> Iterator[str]:
    """Ours, theirs and the ratio for each number of threads."""
    names = [f"nmpsim, {threads_text(n)} | onnxruntime | ratio" for n in THREADS]
    yield "| ResNet-50, 32 cores, one inference | " + " | ".join(names) + " |"
    yield "| --- |" + " ---: |" * (3 * len(THREADS))
    for title in dict.fromkeys(one.title for one in compared):
        row = [
            f"{one.ours_ms:.1f} ms | {one.native_ms:.1f} ms | {one.ratio:.2f}"
            for one in compared
            if one.title == title
        ]
        yield f"| {title} | " + " | ".join(row) + " |"


def hosts_table(compared: list[Compared], known: Iterable[str]) -> Iterator[str]:
    """Yield the ratios for this kind of host, below the rows that are ``known`` of others."""
    names = [f"{one.title}, {threads_text(one.threads)}" for one in compared]
    yield f"{HOSTS} {' | '.join(names)} |"
    yield "| --- |" + " ---: |" * len(names)
    kind = f"| {machine()} |"
    yield from (row for row in known if not row.startswith(kind))
    yield f"{kind} {' | '.join(f'{one.ratio:.2f}' for one in compared)} |"


def known_hosts() -> list[str]:
    """Return the rows of the table of hosts that docs/speed.md has already."""
    table = TABLES_PAGE.read_text(encoding="utf-8").partition(HOSTS)[2].partition("\n\n")[0]
    return table.splitlines()[2:]


def threads_text(threads: int) -> str:
    """Return a number of threads in words."""
    return f"{threads} thread{'s'[: threads > 1]}"


def numbers_of(command: list[str], **environment: str) -> tuple[float, str]:
    """Seconds that a process takes, and what it prints."""
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - begin, done.stdout


def memory_of(program: Loaded) -> float:
    """Most megabytes of a process that loads a program and runs it."""
    inputs = str(resnet50_folder() / "input.npz")
    return float(numbers_of([sys.executable, "-c", MEMORY, str(program.path), inputs])[1]) / 1024


def program_costs(programs: list[Loaded]) -> Iterator[str]:
    """Rows of what a program costs beside its inferences."""
    yield "| | compile | load and first inference | peak memory |"
    yield "| --- | ---: | ---: | ---: |"
    for program in programs:
        seconds, first, memory = program.compile_seconds, program.first_ms, memory_of(program)
        yield f"| {program.title} | {seconds:.1f} s | {first:.0f} ms | {memory:.0f} MB |"


def start_costs(folder: Path) -> Iterator[str]:
    """Rows of what ``nmpsim run`` takes from command to result, for the digits program."""
    digits = REPOSITORY / "programs/digits"
    command = [sys.executable, "-m", "nmpsim"]
    bundle = str(folder / "digits.bin")
    weights = ["--weights", str(digits / "digits.npz"), "-o", bundle]
    numbers_of([*command, "compile", str(digits / "digits.lir.txt"), *weights])
    asked = [*command, "run", bundle, "--input", str(digits / "images/7.npy")]
    cache = {"NUMBA_CACHE_DIR": str(folder / "kernels")}
    without = {**cache, "NMPSIM_COMPILE_AHEAD": "0"}
    first = min(numbers_of(asked, **without)[0] for _ in range(3))
    compiled = [*asked, "--engine", "compiled"]
    compiling = numbers_of(compiled, **cache)[0]
    later = min(numbers_of(compiled, **cache)[0] for _ in range(3))
    yield "| `nmpsim run` of the digits, from command to result | |"
    yield "| --- | ---: |"
    yield f"| any run, with automatic engine selection | {first:.2f} s |"
    yield f"| first run on the compiled engine: kernels are compiled | {compiling:.1f} s |"
    yield f"| later runs on the compiled engine | {later:.2f} s |"


def time_shares(program: Loaded, folder: Path) -> Iterator[str]:
    """Rows of where the host's time goes."""
    found = host_time(program.path, resnet50_folder() / "input.npz", folder)
    if found:
        yield f"| host time, {program.title} | |"
        yield "| --- | ---: |"
    for part, share in found.items():
        yield f"| {part} | {100 * share:.0f} % |"


def machine() -> str:
    """Return a description of the host's processor."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{TARGET}, {names[0] if names else 'unknown processor'}, {os.cpu_count()} CPUs"


def tables(rounds: int) -> tuple[str, str]:
    """Measure, and return the table of inferences and all tables in Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = load_programs(folder)
        compared = compare(programs, quantized_network(folder), rounds)
        inferences = list(times_table(compared))
        parts = [
            inferences,
            hosts_table(compared, known_hosts()),
            program_costs(programs),
            start_costs(folder),
            time_shares(programs[0], folder),
        ]
        text = "\n".join(line for part in parts for line in (*part, ""))
    date = datetime.datetime.now(tz=datetime.UTC).date()
    head = f"Measured on {date} ({machine()}); onnxruntime runs a u8s8 ResNet-50.\n\n"
    return "\n".join((*inferences, "")), head + text


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{page} has no place for the tables: {BEGIN.strip()} ... {END.strip()}")
    made = f"{before}{BEGIN}\n{text}\n{END}{after}".encode()
    write_file(page, lambda file: file.write(made))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--readme", type=Path, help="the README; also updates docs/speed.md")
    asked = parser.parse_args()
    if not resnet50_folder().is_dir():
        sys.exit(f"no reference files at {resnet50_folder()}; NMPSIM_SHARED names the folder")
    inferences, everything = tables(asked.rounds)
    print(everything)
    if asked.readme:
        put_into(asked.readme, inferences)
        put_into(TABLES_PAGE, everything)


if __name__ == "__main__":
    main()
