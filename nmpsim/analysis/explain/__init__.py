"""Explain how layers rescale: the integers that replace real factors."""

from nmpsim.analysis.explain.document import layers_json, scale_json, schemas_json
from nmpsim.analysis.explain.factors import (
    ErrorBand,
    Factor,
    FormErrors,
    SchemaFit,
    fit_schemas,
    make_factor,
    measure_error_band,
    measure_errors,
)
from nmpsim.analysis.explain.layers import (
    LayerFacts,
    OperandFacts,
    Stage,
    explain_layers,
)
from nmpsim.analysis.explain.profiles import ProfileFacts, ProfileForm

__all__ = [
    "ErrorBand",
    "Factor",
    "FormErrors",
    "LayerFacts",
    "OperandFacts",
    "ProfileFacts",
    "ProfileForm",
    "SchemaFit",
    "Stage",
    "explain_layers",
    "fit_schemas",
    "layers_json",
    "make_factor",
    "measure_error_band",
    "measure_errors",
    "scale_json",
    "schemas_json",
]
