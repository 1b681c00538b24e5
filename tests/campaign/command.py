"""``python -m tests.campaign``: run property-based tests with fresh seeds for a given time."""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[2]
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
_LOOK_SECONDS = 0.2
_TOLD_LINES = 60


@attrs.define
class Failure:
    """Test that failed with a seed."""

    test: str
    seed: int
    text: str

    @property
    def command(self) -> str:
        """Return the command that reproduces the failure."""
        return (
            f"python -m pytest {self.test!r} --hypothesis-profile=campaign"
            f" --hypothesis-seed={self.seed}"
        )


@attrs.define
class Tally:
    """Totals of a campaign: examples, runs, failures and problems."""

    examples: Counter[str] = attrs.Factory(Counter)
    runs: Counter[str] = attrs.Factory(Counter)
    failures: list[Failure] = attrs.Factory(list)
    problems: list[str] = attrs.Factory(list)
    interrupted: bool = False
    """Whether Ctrl-C was pressed."""

    def record_run(self, test: str, seed: int, examples: int, failed: str) -> None:
        """Count one run of a test, and print the first failure of each test."""
        self.runs[test] += 1
        self.examples[test] += examples
        if failed:
            known = any(one.test == test for one in self.failures)
            self.failures.append(Failure(test, seed, failed))
            if not known:
                _tell(self.failures[-1])


class Worker:
    """Process of pytest that repeats tests, with the log of its results."""

    def __init__(self, folder: Path, number: int, seed: int, step: int, only: str) -> None:
        self._path = folder / f"worker-{number}.jsonl"
        self._path.touch()
        self._output = (folder / f"worker-{number}.txt").open("w+", encoding="utf-8")
        self._read = self._path.open(encoding="utf-8")
        self._part = ""
        self.running: tuple[str, int] | None = None
        self.has_tests = True
        words = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.campaign.repeat"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=campaign"),
            *("--campaign-log", str(self._path), "--campaign-seed", str(seed)),
            *("--campaign-step", str(step), "-k", only, str(ROOT / "tests")),
        ]
        # Ctrl-C is for the command, which ends its workers.
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdout=self._output, stderr=self._output, start_new_session=True
        )

    def read_events(self, tally: Tally) -> None:
        """Read the events that the process has logged since the last call."""
        for line in self._lines():
            event = json.loads(line)
            if event["event"] == "begin":
                self.running = event["test"], event["seed"]
            elif event["event"] == "end":
                self.running = None
                tally.record_run(event["test"], event["seed"], event["examples"], event["failed"])
            else:
                self.has_tests = event["count"] > 0

    def _lines(self) -> Iterator[str]:
        self._part += self._read.read()
        *lines, self._part = self._part.split("\n")
        return iter(lines)

    def read_output_end(self) -> str:
        """Return the end of the process's output."""
        self._output.flush()
        self._output.seek(0)
        return "\n".join(self._output.read().splitlines()[-_TOLD_LINES:])

    def kill(self) -> None:
        """Kill the process, even in the middle of a test."""
        self.process.kill()
        self.process.wait()
        self._read.close()
        self._output.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = _arguments(arguments)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    tally, begin = Tally(), time.monotonic()

    def note_interrupt(*_: object) -> None:
        tally.interrupted = True

    # A KeyboardInterrupt inside exec() of a text, which imports use, makes Python end itself with
    # SIGINT instead of the exit code, although it was caught.
    signal.signal(signal.SIGINT, note_interrupt)
    print(f"campaign with seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmpsim-campaign-") as folder:
        _run(given, seed, begin + 60 * given.minutes, Path(folder), tally)
    _summarize(tally)
    if given.log is not None:
        _log(given.log, tally, seed, time.monotonic() - begin)
    if tally.failures or tally.problems:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if tally.interrupted else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description="Run the property-based tests with fresh seeds until time is over.",
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="how long")
    parser.add_argument("--count", type=float, default=math.inf, help="how many runs of a test")
    parser.add_argument("--only", default="", metavar="NAME", help="as -k of pytest")
    parser.add_argument("--seed", type=int, help="the first seed; any other day's if not given")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line of JSON")
    given = parser.parse_args(arguments)
    if given.minutes == given.count:
        parser.error("it needs --minutes or --count")
    if given.minutes <= 0 or given.jobs < 1:
        parser.error("--minutes and --jobs are more than 0")
    return given


def _run(given: argparse.Namespace, seed: int, deadline: float, folder: Path, tally: Tally) -> None:
    """Keep the workers running until the deadline, and end all of them afterwards."""

    def started(number: int) -> Worker:
        return Worker(folder, number, seed + number, given.jobs, given.only)

    workers = [started(number) for number in range(given.jobs)]
    try:
        while time.monotonic() < deadline and tally.runs.total() < given.count:
            time.sleep(_LOOK_SECONDS)
            if tally.interrupted:
                break
            for place, worker in enumerate(workers):
                is_over = worker.process.poll() is not None
                worker.read_events(tally)
                if is_over:
                    _record_end(worker, tally)
                    if worker.running is None:
                        return  # pytest itself could not start, so neither could another
                    worker.kill()
                    # Its seeds are used up to where it died.
                    seed = worker.running[1] + given.jobs - place
                    workers[place] = started(place)
    finally:
        for worker in workers:
            with suppress(ValueError):
                worker.read_events(tally)
            worker.kill()


def _record_end(worker: Worker, tally: Tally) -> None:
    """Record why a process ended: a crash of the tested code, or a failed start of pytest."""
    if worker.running is not None:
        test, seed = worker.running
        tally.record_run(test, seed, 0, f"the process died\n{worker.read_output_end()}")
    elif not worker.has_tests:
        tally.problems.append("there is no property-based test of that name")
    else:
        tally.problems.append(f"pytest could not run\n{worker.read_output_end()}")


def _tell(failure: Failure) -> None:
    tail = "\n".join(failure.text.splitlines()[-_TOLD_LINES:])
    print(f"\nFAILED {failure.test}\n{tail}\nto run it again:\n  {failure.command}\n", flush=True)


def _summarize(tally: Tally) -> None:
    for test, examples in sorted(tally.examples.items()):
        print(f"{examples:>9,}  {tally.runs[test]:>5} runs  {test}")
    failed = Counter(one.test for one in tally.failures)
    print(
        f"{tally.examples.total():,} examples in {tally.runs.total():,} runs of"
        f" {len(tally.runs)} tests, {len(failed)} tests failed"
    )
    for test, times in sorted(failed.items()):
        first = next(one for one in tally.failures if one.test == test)
        print(f"FAILED {test}, {times} times\n  {first.command}")
    for problem in tally.problems:
        print(f"error: {problem}")


def _log(path: Path, tally: Tally, seed: int, seconds: float) -> None:
    record: dict[str, Any] = {
        "command": "campaign",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "seconds": round(seconds, 1),
        "examples": tally.examples.total(),
        "runs": tally.runs.total(),
        "tests": dict(sorted(tally.examples.items())),
        "failures": [{"test": one.test, "seed": one.seed} for one in tally.failures],
    }
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(record), file=file)
