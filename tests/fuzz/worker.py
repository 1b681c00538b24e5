"""Fuzz one format with Atheris in this process, which :mod:`tests.fuzz.command` starts.

An input is written into a file that is mapped into memory before it is tried, so whatever this
process dies of, the one that started it has the input. What is only an exception is written
down, once for each place that raises it, and fuzzing goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import mmap
import resource
import signal
import struct
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import atheris

import nmpsim
from nmpsim.kernels.sources import list_compiled_sources

from .target import CORPUS, Target, list_corpus, load_target

MEMORY_BYTES = 1 << 30
"""Memory that an input may use in addition to the initial memory of the process."""
STATE = struct.Struct("<QQ")
"""Number of inputs begun and size of the last one, which follows."""
_WARM_UPS = 4
_SIGNALS = ("segv", "bus", "abrt", "ill", "fpe")
"""Signals that libFuzzer must not handle, so that they end the process."""
_NEVER = 10**6
"""Time limit in seconds for libFuzzer; this process and its parent limit inputs themselves."""
INSTRUMENTED = ["nmpsim", "tomllib"]
READERS = ("nmpsim.isa.assembly", "nmpsim.isa.expressions")
"""Modules of compiled sources that are instrumented nevertheless, because they read text."""


def list_uninstrumented_modules() -> list[str]:
    """Return the modules that Numba compiles, which must not be instrumented."""
    root = Path(nmpsim.__file__).parents[1]
    paths = (path.relative_to(root).with_suffix("") for path in list_compiled_sources())
    return [name for name in (".".join(path.parts) for path in paths) if name not in READERS]


class TooSlowError(BaseException):
    """Processor time limit of an input; not an Exception, so that no handler catches it."""


class Worker:
    """Fuzzer that judges inputs and writes findings to files."""

    def __init__(self, name: str, judge: Target, state: Path, findings: Path) -> None:
        self._name = name
        self._judge = judge
        self._findings = findings
        self._seen: set[str] = set()
        file = state.open("r+b")
        self._state = mmap.mmap(file.fileno(), 0)
        self._count: int = STATE.unpack_from(self._state)[0]

    def try_input(self, data: bytes) -> None:
        """Judge one input."""
        data = data[: self._judge.most_bytes]
        self._count += 1
        self._state[STATE.size : STATE.size + len(data)] = data
        STATE.pack_into(self._state, 0, self._count, len(data))
        signal.setitimer(signal.ITIMER_PROF, self._judge.seconds)
        try:
            self._judge.run(data)
        except (Exception, TooSlowError) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._record_finding(data, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _record_finding(self, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "nmpsim" in f.filename]
        what = type(error).__name__
        if isinstance(error, AssertionError):  # a fuzzer's own finding; it says what it is
            what, ours = f"{what}: {str(error)[:120]}", []
        # A slow input may be stopped anywhere.
        place = what if isinstance(error, TooSlowError) else " ".join((what, *ours[-2:]))
        if place in self._seen:
            return
        self._seen.add(place)
        name = hashlib.sha1(data).hexdigest()[:16]
        folder = self._findings / self._name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        text = "".join(traceback.format_exception(error)[-12:])[-4000:]
        record = {"target": self._name, "place": place, "file": name, "text": text}
        with (self._findings / "new.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps(record), file=file, flush=True)


def main() -> None:
    """Fuzz until libFuzzer's limit of inputs or time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    parser.add_argument("--grown", type=Path, required=True, help="inputs that reached new code")
    parser.add_argument("--seed", type=int, required=True)
    given, fuzzer_arguments = parser.parse_known_args()

    with atheris.instrument_imports(INSTRUMENTED, list_uninstrumented_modules(), False):
        judge = load_target(given.name)
        seeds = [*judge.seeds(), *(path.read_bytes() for path in list_corpus(given.name))]
        worker = Worker(given.name, judge, given.state, given.findings)
        signal.signal(signal.SIGPROF, _too_slow)
        # What is imported or compiled when it is first needed is not an input's doing.
        for seed in seeds[:_WARM_UPS]:
            _warm_up(judge, seed)
    warnings.simplefilter("error")
    _limit_memory()
    faulthandler.enable()
    sys.stdin.close()
    for seed in seeds:
        worker.try_input(seed)
        (given.grown / hashlib.sha1(seed).hexdigest()).write_bytes(seed[: judge.most_bytes])

    def mutated(data: bytes, most_bytes: int, seed: int) -> bytes:
        random = Random(seed)
        if judge.mutate is not None and random.random() < 0.7:
            # Bytes that are no such structure any more may raise anything.
            with suppress(Exception):
                return judge.mutate(data, random)[:most_bytes]
        changed: bytes = atheris.Mutate(data, most_bytes)
        return changed

    words = [
        sys.argv[0], *fuzzer_arguments, f"-seed={given.seed}", f"-max_len={judge.most_bytes}",
        "-len_control=0", "-rss_limit_mb=0", f"-timeout={_NEVER}",
        *(f"-handle_{name}=0" for name in _SIGNALS),
        f"-artifact_prefix={given.grown}/", str(given.grown), str(CORPUS / given.name),
    ]  # fmt: skip
    atheris.Setup(words, worker.try_input, custom_mutator=mutated)
    atheris.Fuzz()


def _warm_up(judge: Target, seed: bytes) -> None:
    try:
        judge.run(seed)
    except Exception:
        return  # it is tried again, and told then


def _limit_memory() -> None:
    """Limit memory, so that hostile inputs end with a MemoryError, which is a defect."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    used = int(pages) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


def _too_slow(*_: Any) -> None:
    raise TooSlowError


if __name__ == "__main__":
    main()
