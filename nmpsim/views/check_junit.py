"""Results of checks as JUnit XML: a suite per case, with a test per check and per layer.

The dialect is that of Ant and Jenkins (``junit-10.xsd`` of Jenkins' xUnit plugin).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from nmpsim.checking import CaseResult, CheckResult
from nmpsim.escape import escape
from nmpsim.extras import require_extra


def require_junitparser() -> None:
    """Raise UserError (PKG001) if the optional package junitparser is missing."""
    with require_extra("ci", "JUnit XML needs the package junitparser"):
        import junitparser  # noqa: F401 - only whether it is there


def format_junit(results: Sequence[CaseResult]) -> str:
    """Return the results of checks as a JUnit XML document."""
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    document = JUnitXml("nmpsim check")
    for result in results:
        cases = []
        if result.errors:
            cases.append(TestCase("can be checked", _plain(result.name)))
            error = Error(_plain(result.errors[0].message), result.errors[0].code)
            error.text = _plain("\n".join(map(str, result.errors)))
            cases[0].result = [error]
        for check in result.checks:
            cases.append(TestCase(check.name, f"{_plain(result.name)}.checks"))
            if check.failed:
                failure = Failure(_plain(check.message), check.status)
                failure.text = _plain("\n".join(_details(result, check)))
                cases[-1].result = [failure]
        for layer in result.layers:
            name = _plain(f"{layer.index:04d} {layer.display_name} ({layer.operation})")
            cases.append(TestCase(name, f"{_plain(result.name)}.layers"))
            cases[-1].result = [
                Failure(_plain(f"{check.name}: {culprit.message}"), check.status)
                for check in result.failed_checks
                for culprit in check.culprits
                if culprit.index == layer.index
            ]
        for case in cases[:1]:  # readers add up the times
            case.time = round(result.seconds, 3)
        suite = TestSuite(_plain(result.name))
        suite.add_testcases(cases)
        document.add_testsuite(suite)
    sink = io.BytesIO()
    document.write(sink, pretty=True)
    return sink.getvalue().decode()


def _details(result: CaseResult, check: CheckResult) -> Iterator[str]:
    """Yield the failed layers, a version note, and the command that opens the core file."""
    yield from (f"{one.place}: {one.message}" for one in check.culprits)
    if result.version_note is not None:
        yield result.version_note
    if result.core is not None:
        yield f"core file: {result.core.command} stops {result.core.position}"


def _plain(text: str) -> str:
    """Return text for XML, without control characters and halves of surrogate pairs."""
    return escape(text).encode("utf-8", "backslashreplace").decode()
