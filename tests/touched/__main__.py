"""Run the tests closest to a change, in about a minute: ``python -m tests.touched``.

The change is what differs from BASE, files that are not committed included. For a module of
nmpsim/ these tests run: those in the folder of tests/ with its package's name that import it,
directly or not, and a dozen test files of other packages that import it directly. A changed test
or helper runs the tests that import it; pages of docs/ run tests/docs.

Left out are tests of other packages that reach the module only through other modules, all but
that dozen of a module that many import, and slow tests. So passing is no proof: the README's
command runs all tests but the slow ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tests.touched.selection import select

ROOT = Path(__file__).parents[2]
VERBATIM = argparse.RawDescriptionHelpFormatter


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.splitlines()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.touched", description=__doc__, formatter_class=VERBATIM
    )
    parser.add_argument("--base", metavar="REF", help="default: where the branch left main")
    parser.add_argument("--list", action="store_true", help="print the test files and stop")
    options, words = parser.parse_known_args(arguments)
    base = options.base or git("merge-base", "main", "HEAD")[0]
    changed = git("diff", "--name-only", base, "--")
    changed += git("ls-files", "--others", "--exclude-standard")
    tests = select(changed, ROOT)
    if options.list:
        print(*tests, sep="\n")
    print(f"{len(changed)} changed files, {len(tests)} test files", file=sys.stderr)
    if options.list or not tests:
        return 0
    return pytest.main(["-q", "-n", "2", "--dist", "worksteal", *words, *tests])


if __name__ == "__main__":
    sys.exit(main())
