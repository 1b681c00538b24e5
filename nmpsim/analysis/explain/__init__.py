"""Explain how layers rescale: the integers that replace real factors."""

from nmpsim.analysis.explain.document import (
    make_layers_document,
    make_scale_document,
    make_schemas_document,
)
from nmpsim.analysis.explain.factors import (
    ErrorBand,
    Factor,
    FactorErrors,
    SchemaFit,
    fit_schemas,
    make_factor,
    measure_error_band,
    measure_rounding_errors,
)
from nmpsim.analysis.explain.layers import (
    OperationFacts,
    RescaleStage,
    explain_layers,
)
from nmpsim.analysis.explain.profiles import ProfileRescalings, ProfileStage, read_factors

__all__ = [
    "ErrorBand",
    "Factor",
    "FactorErrors",
    "OperationFacts",
    "ProfileRescalings",
    "ProfileStage",
    "SchemaFit",
    "RescaleStage",
    "explain_layers",
    "fit_schemas",
    "make_layers_document",
    "make_factor",
    "measure_error_band",
    "measure_rounding_errors",
    "read_factors",
    "make_scale_document",
    "make_schemas_document",
]
