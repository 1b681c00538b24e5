"""Integer forms of real factors: what Glow derives from scales and prints nowhere."""

from nmpsim.analysis.explain.document import layers_json, scale_json, schemas_json
from nmpsim.analysis.explain.errors import ErrorBand, FormErrors, error_band, form_errors
from nmpsim.analysis.explain.factors import Factor, factor_of
from nmpsim.analysis.explain.layers import (
    LayerFacts,
    OperandFacts,
    explain_layers,
)
from nmpsim.analysis.explain.profiles import ProfileFacts, ProfileForm
from nmpsim.analysis.explain.schemas import SchemaFit, fit_schemas
from nmpsim.analysis.explain.stages import Stage

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
    "error_band",
    "explain_layers",
    "factor_of",
    "fit_schemas",
    "form_errors",
    "layers_json",
    "scale_json",
    "schemas_json",
]
