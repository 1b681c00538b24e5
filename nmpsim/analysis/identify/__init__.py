"""Identify the arithmetic of a device from recorded inputs and results of layers."""

from nmpsim.analysis.identify.classes import Identification, RuleClass, identify_program
from nmpsim.analysis.identify.document import make_identify_document
from nmpsim.analysis.identify.dumps import read_shapes
from nmpsim.analysis.identify.formulas_file import make_formulas_file
from nmpsim.analysis.identify.probe import (
    ClassProbe,
    Probe,
    has_equal_rules,
    is_open_class,
    make_class_probes,
    make_probe,
)

__all__ = [
    "ClassProbe",
    "Identification",
    "Probe",
    "RuleClass",
    "has_equal_rules",
    "identify_program",
    "is_open_class",
    "make_formulas_file",
    "make_identify_document",
    "make_probe",
    "make_class_probes",
    "read_shapes",
]
