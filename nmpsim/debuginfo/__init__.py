"""Debug information of a program: functions, source lines and call frames by address.

It is read from the DWARF sections of an ELF file, or else from its symbol table.
"""

from nmpsim.debuginfo.read import read_source_map
from nmpsim.debuginfo.source_map import CodeFunction, SourceFrame, SourceLine, SourceMap

__all__ = ["CodeFunction", "SourceFrame", "SourceLine", "SourceMap", "read_source_map"]
