"""``python -m tests.fuzz``: fuzz every format for a given time and save failing inputs."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from .target import CORPUS, MAX_BYTES, ROOT, list_formats, load_target

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
START_SECONDS = 300.0
"""Time limit of a process until its first input; kernels may have to be compiled."""
HANG_SECONDS = 60.0
"""Real time without a new input after which code that blocks Python's timers counts as hanging."""
_LOOK_SECONDS = 0.5
_MEMORY = Path("/dev/shm")
"""File system in memory, on Linux."""
_STATE_BYTES = 16


@attrs.frozen
class Finding:
    """Input that exposed a defect."""

    target: str
    place: str
    """Exception and its place, or how the process ended; equal places are one finding."""
    file: Path
    text: str


@attrs.define
class Tally:
    """Totals of a campaign: inputs, seconds, findings and problems."""

    inputs: Counter[str] = attrs.Factory(Counter)
    seconds: Counter[str] = attrs.Factory(Counter)
    findings: dict[tuple[str, str], Finding] = attrs.Factory(dict)
    problems: list[str] = attrs.Factory(list)
    interrupted: bool = False
    """Whether Ctrl-C was pressed."""

    def record_finding(self, finding: Finding) -> None:
        """Record a finding and print it if it is the first of its kind."""
        if self.findings.setdefault((finding.target, finding.place), finding) is finding:
            print(f"\nFOUND {finding.target}: {finding.place}\n{finding.text}\n{_again(finding)}\n")


class Worker:
    """Process that fuzzes one format."""

    def __init__(self, given: argparse.Namespace, name: str, seed: int, done: int) -> None:
        self.name = name
        usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
        self.folder = Path(tempfile.mkdtemp(prefix="nmpsim-fuzz-", dir=_MEMORY if usable else None))
        self._state = self.folder / "state"
        with self._state.open("wb") as file:
            file.truncate(_STATE_BYTES + MAX_BYTES)
        grown = (given.corpus or self.folder) / name
        grown.mkdir(parents=True, exist_ok=True)
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        words = [
            *(sys.executable, "-m", "tests.fuzz.worker", name, "--state", str(self._state)),
            *("--findings", str(given.findings), "--grown", str(grown), "--seed", str(seed)),
        ]
        if math.isfinite(given.count):
            words.append(f"-runs={max(1, given.count - done)}")
        self._output = (self.folder / "output").open("w+", encoding="utf-8")
        # Ctrl-C is for the command, which ends its workers and removes their files.
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdout=self._output, stderr=self._output, start_new_session=True,
            env=os.environ | {"TMPDIR": str(self.folder), "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        self._count, self._moved = 0, time.monotonic() + START_SECONDS - HANG_SECONDS

    def count_inputs(self) -> int:
        """Return how many inputs the process has begun."""
        with self._state.open("rb") as file:
            count = int.from_bytes(file.read(8), "little")
        if count != self._count:
            self._count, self._moved = count, time.monotonic()
        return count

    @property
    def hangs(self) -> bool:
        """Return whether the process has spent too long on one input."""
        return time.monotonic() - self._moved > HANG_SECONDS

    def read_input(self) -> bytes:
        """Return the input that the process tried last."""
        data = self._state.read_bytes()
        return data[_STATE_BYTES : _STATE_BYTES + int.from_bytes(data[8:16], "little")]

    def read_output_end(self) -> str:
        """Return the end of the process's output."""
        self._output.flush()
        self._output.seek(0)
        return self._output.read()[-3000:]

    def kill(self) -> None:
        """Kill the process and remove its files."""
        self.process.kill()
        self.process.wait()
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = _arguments(arguments)
    if given.replay is not None:
        return _replay(given)
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    tally, begin = Tally(), time.monotonic()

    def note_interrupt(*_: object) -> None:
        tally.interrupted = True

    # A KeyboardInterrupt inside exec() of a text, which imports use, makes Python end itself with
    # SIGINT instead of the exit code, although it was caught.
    signal.signal(signal.SIGINT, note_interrupt)
    print(f"fuzzing {', '.join(given.only)} with seed {seed}", flush=True)
    _run(given, seed, tally)
    _summarize(tally)
    if given.log is not None:
        _log(given.log, tally, seed, time.monotonic() - begin)
    if tally.findings or tally.problems:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if tally.interrupted else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz what nmpsim reads until time is over."
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="for all formats together")
    parser.add_argument("--count", type=float, default=math.inf, help="inputs of each format")
    parser.add_argument(
        "--only", metavar="NAME,...", help=f"some formats of {', '.join(list_formats())}"
    )
    parser.add_argument("--seed", type=int, help="another one each time if not given")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="keep inputs that reached new code, go on there"
    )
    parser.add_argument(
        "--findings", type=Path, metavar="DIR", default=ROOT / "build" / "fuzz",
        help="where inputs that break something are kept (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line of JSON")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="try this input of the one format of --only"
    )
    given = parser.parse_args(arguments)
    given.only = list_formats() if given.only is None else given.only.split(",")
    unknown = set(given.only) - set(list_formats())
    if unknown:
        parser.error(f"there is no format {sorted(unknown)}")
    if given.replay is not None:
        if len(given.only) != 1:
            parser.error("--replay needs --only with one format")
    elif given.minutes == given.count:
        parser.error("it needs --minutes or --count")
    if given.minutes <= 0 or given.count < 1 or given.jobs < 1:
        parser.error("--minutes, --count and --jobs are more than 0")
    if math.isfinite(given.count):
        given.count = int(given.count)
    return given


def _run(given: argparse.Namespace, seed: int, tally: Tally) -> None:
    """Fuzz each format for its share of the time, and end all processes afterwards."""
    try:
        import atheris  # noqa: F401 - whether it is there
    except ImportError:
        tally.problems.append("Atheris is missing: pip install -e '.[test,fuzz]'")
        return
    share = 60 * given.minutes * min(given.jobs, len(given.only)) / len(given.only)
    waiting = list(given.only)
    running: list[tuple[Worker, float]] = []
    given.findings.mkdir(parents=True, exist_ok=True)
    news = given.findings / "new.jsonl"
    news.write_text("")
    told = 0
    try:
        while waiting or running:
            while waiting and len(running) < given.jobs:
                name = waiting.pop(0)
                done, spent = tally.inputs[name], tally.seconds[name]
                worker = Worker(given, name, seed + done, done)
                running.append((worker, time.monotonic() - spent))
            time.sleep(_LOOK_SECONDS)
            if tally.interrupted:
                break
            for worker, begin in list(running):
                count = worker.count_inputs()
                is_over = worker.process.poll() is not None
                seconds = time.monotonic() - begin
                if is_over or worker.hangs or seconds > share:
                    running.remove((worker, begin))
                    tally.seconds[worker.name] = seconds
                    if _judge(given, worker, is_over, tally) and seconds < share:
                        waiting.insert(0, worker.name)
                    tally.inputs[worker.name] += worker.count_inputs()
                    worker.kill()
                elif count:
                    tally.seconds[worker.name] = seconds
            told = _record_new(news, told, given.findings, tally)
    finally:
        for worker, _ in running:
            tally.inputs[worker.name] += worker.count_inputs()
            worker.kill()
        _record_new(news, told, given.findings, tally)


def _judge(given: argparse.Namespace, worker: Worker, is_over: bool, tally: Tally) -> bool:
    """Record why a process hangs or ended; return whether its format needs another one."""
    code = worker.process.returncode
    if is_over and code == 0:
        return False
    if not is_over and not worker.hangs:
        return False
    if worker.count_inputs() == 0:
        tally.problems.append(f"{worker.name} could not begin\n{worker.read_output_end()}")
        return False
    place = "it hangs"
    if is_over:
        place = signal.Signals(-code).name if code < 0 else f"the process ended with {code}"
    data = worker.read_input()
    file = given.findings / worker.name / hashlib.sha1(data).hexdigest()[:16]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    tally.record_finding(Finding(worker.name, place, file, worker.read_output_end()))
    return True


def _record_new(news: Path, told: int, folder: Path, tally: Tally) -> int:
    """Record the findings after the first ``told``; return the total number of findings."""
    lines = [line for line in news.read_text(encoding="utf-8").split("\n")[:-1] if line]
    for line in lines[told:]:
        one: dict[str, Any] = json.loads(line)
        file = folder / one["target"] / one["file"]
        tally.record_finding(Finding(one["target"], one["place"], file, one["text"]))
    return len(lines)


def _again(finding: Finding) -> str:
    return (
        f"to try it again:\n  python -m tests.fuzz --only {finding.target} --replay {finding.file}"
    )


def _replay(given: argparse.Namespace) -> int:
    load_target(given.only[0]).run(given.replay.read_bytes())
    print("no defect")
    return 0


def _summarize(tally: Tally) -> None:
    found = Counter(name for name, _ in tally.findings)
    for name, inputs in sorted(tally.inputs.items()):
        rate = inputs / max(tally.seconds[name], 1e-9)
        print(f"{name:<12} {inputs:>12,} inputs {rate:>9,.0f}/s  {found[name]} findings")
    print(f"{tally.inputs.total():,} inputs, {len(tally.findings)} findings")
    for finding in tally.findings.values():
        print(f"FOUND {finding.target}: {finding.place}\n  {finding.file}")
    for problem in tally.problems:
        print(f"error: {problem}")


def _log(path: Path, tally: Tally, seed: int, seconds: float) -> None:
    record = {
        "command": "fuzz",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "seconds": round(seconds, 1),
        "inputs": tally.inputs.total(),
        "formats": dict(sorted(tally.inputs.items())),
        "findings": [
            {"format": one.target, "place": one.place, "file": one.file.name}
            for one in tally.findings.values()
        ],
    }
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(record), file=file)
