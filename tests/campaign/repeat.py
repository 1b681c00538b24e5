"""Plugin of pytest that repeats property-based tests with a new seed each time.

It is loaded by :mod:`tests.campaign.command` in a process of its own and tells what it does as
lines of JSON in the file ``--campaign-log``: ``begin`` before a test, ``end`` behind it.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import core, is_hypothesis_test

_EXAMPLES = re.compile(r"(\d+) passing[^,\n]*, (\d+) failing")
"""Numbers of examples in Hypothesis' statistics of a test, which are text only."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaign")
    group.addoption("--campaign-log", type=Path, required=True)
    group.addoption("--campaign-seed", type=int, required=True)
    group.addoption("--campaign-step", type=int, required=True, help="from a seed to the next")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Repeat(config), "campaign-repeat")


class _Repeat:
    def __init__(self, config: pytest.Config) -> None:
        self._log = config.getoption("--campaign-log").open("a", encoding="utf-8")
        self._seed: int = config.getoption("--campaign-seed")
        self._step: int = config.getoption("--campaign-step")
        self._failed = ""

    @pytest.hookimpl(trylast=True)  # when -k has chosen
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
        self._tell(event="tests", count=len(items))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run tests until the parent process ends, instead of pytest's own loop."""
        parent = os.getppid()
        for item, following in pairwise(self._order(session.items)):
            if os.getppid() != parent:
                break
            self._once(item, following)
        return True

    def _order(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        """Yield all tests in random order, endlessly."""
        order = random.Random(self._seed)
        while items:
            yield from order.sample(items, len(items))

    def _once(self, item: pytest.Item, following: pytest.Item) -> None:
        # As --hypothesis-seed does it, which sets it once for a process.
        core.global_force_seed = self._seed
        self._failed = ""
        vars(item).pop("hypothesis_statistics", None)
        self._tell(event="begin", test=item.nodeid, seed=self._seed)
        # The fixtures that the following test has, too, are kept.
        item.config.hook.pytest_runtest_protocol(
            item=item, nextitem=following if following is not item else None
        )
        found: Any = getattr(item, "hypothesis_statistics", "")
        examples = sum(int(p) + int(f) for p, f in _EXAMPLES.findall(found))
        self._tell(
            event="end", test=item.nodeid, seed=self._seed, examples=examples, failed=self._failed
        )
        self._seed += self._step

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += report.longreprtext

    def _tell(self, **what: object) -> None:
        print(json.dumps(what), file=self._log, flush=True)
