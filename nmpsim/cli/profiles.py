"""Profiles and coverage that ``nmpsim run`` writes besides the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nmpsim.cli.guard import print_message
from nmpsim.cli.output import write_text
from nmpsim.cli.parameters import OutputFile, define_option
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.profile import CallStacks
    from nmpsim.analysis.trace import TimelineTrace
    from nmpsim.bundle import Bundle
    from nmpsim.core.execution_log import ExecutionLog
    from nmpsim.debuginfo import SourceMap

_PROFILES = "Profiles"


@frozen(kw_only=True)
class ProfileOptions:
    """Command-line options that select the profile and the coverage file of a run."""

    profile: OutputFile | None = define_option(
        "Cycles of each function, for speedscope.app.", "OUT.json", group=_PROFILES
    )
    coverage: OutputFile | None = define_option(
        "Executions of each source line, for lcov.", "OUT.info", group=_PROFILES
    )

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Paths of the files, with None for each file that is not requested."""
        return self.profile, self.coverage


@attrs.frozen(eq=False)
class RunProfile:
    """Profile of one run: the execution log, and what the files are made of."""

    log: ExecutionLog
    stacks: CallStacks
    source_map: SourceMap

    def write_files(self, options: ProfileOptions, program: str) -> None:
        """Write the requested files of a profile after the run of a program."""
        from nmpsim.analysis.profile import format_coverage, make_speedscope_document

        if options.profile is not None:
            document = make_speedscope_document(program, self.log.layout, self.stacks)
            write_text(json.dumps(document, separators=(",", ":")) + "\n", options.profile)
        if options.coverage is not None:
            write_text(format_coverage(self.source_map, self.log), options.coverage)


def make_run_profile(
    options: ProfileOptions, bundle: Bundle, cores: int, timeline: TimelineTrace | None
) -> RunProfile | None:
    """Return the profile of a run before it begins, or None if no file needs one.

    A ``timeline`` of an ELF program without metadata also needs it, for the functions of each core.

    Raises
    ------
    UserError
        LINE001 or PKG001 if the program has no source lines for a coverage file.
    """
    has_functions = timeline is not None and not bundle.has_metadata
    if not any(options.outputs) and not has_functions:
        return None
    from nmpsim.analysis.profile import CallStacks, list_profile_functions
    from nmpsim.core.execution_log import CodeLayout, ExecutionLog
    from nmpsim.debuginfo import read_source_map

    source_map = read_source_map(bundle, requires_lines=options.coverage is not None)
    if source_map.warning:
        print_message(f"warning: {source_map.warning}")
    layout = CodeLayout(bundle, list_profile_functions(bundle, source_map.functions))
    listener = None
    if timeline is not None and has_functions:
        listener = timeline.begin_functions([name for name, _ in layout.names])
    stacks = CallStacks(layout, cores, listener)
    return RunProfile(ExecutionLog(layout, [stacks]), stacks, source_map)
