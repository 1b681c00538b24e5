"""Profiles and coverage of a run by function and source line, from its execution log."""

from nmpsim.analysis.profile.call_stacks import CallStacks, FrameListener
from nmpsim.analysis.profile.coverage import format_coverage
from nmpsim.analysis.profile.functions import list_profile_functions
from nmpsim.analysis.profile.speedscope import make_speedscope_document

__all__ = [
    "CallStacks",
    "FrameListener",
    "format_coverage",
    "list_profile_functions",
    "make_speedscope_document",
]
