"""Coverage of source lines and functions in the format of lcov.

Source: the section FILES of the manual page geninfo(1).
"""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.core.execution_log import ExecutionLog
from nmpsim.debuginfo import SourceLine, SourceMap


def format_coverage(source_map: SourceMap, log: ExecutionLog) -> str:
    """Format the coverage of a run, over all cores, as the text of an lcov file.

    The count of a line or function is how often its first instruction was executed; the counts of
    inlined copies are added.
    """
    return "".join(
        f"{line}\n"
        for file in source_map.list_files()
        for line in _format_file(source_map, log, file)
    )


def _format_file(source_map: SourceMap, log: ExecutionLog, file: str) -> Iterator[str]:
    functions: dict[tuple[int, str], int] = {}
    for function in source_map.functions:
        place = function.declaration
        if place is not None and place.file == file and function.is_entry:
            key = place.line, function.name
            functions[key] = functions.get(key, 0) + log.get_count(function.start)
    counts = {
        line: sum(map(log.get_count, source_map.find_line_addresses(SourceLine(file, line))))
        for line in source_map.list_lines(file)
    }
    yield "TN:"
    yield f"SF:{file}"
    for line, name in functions:
        yield f"FN:{line},{name}"
    for (_, name), count in functions.items():
        yield f"FNDA:{count},{name}"
    yield f"FNF:{len(functions)}"
    yield f"FNH:{sum(count > 0 for count in functions.values())}"
    for line, count in counts.items():
        yield f"DA:{line},{count}"
    yield f"LF:{len(counts)}"
    yield f"LH:{sum(count > 0 for count in counts.values())}"
    yield "end_of_record"
