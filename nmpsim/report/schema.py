"""The JSON Schema of a run report, for those who read reports with other tools."""

from __future__ import annotations

import sys
from typing import Any

from nmpsim.report.data import SCHEMA
from nmpsim.report.details import UNITS
from nmpsim.report.sensitivity import SENSITIVITY_SCHEMA
from nmpsim.report.shadow import SHADOW_SCHEMA

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_LARGEST = (1 << 63) - 1
_COUNT = {"type": "integer", "minimum": 0, "maximum": _LARGEST}
_WHOLE = {"type": "integer", "minimum": -_LARGEST - 1, "maximum": _LARGEST}
_WHOLE_OR_NULL = {**_WHOLE, "type": ["integer", "null"]}
_WHOLE_OR_TEXT = {**_WHOLE, "type": ["integer", "string"]}
_FINITE = {"type": "number", "minimum": -sys.float_info.max, "maximum": sys.float_info.max}
_SHARE = {**_FINITE, "minimum": 0}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_REAL = {"anyOf": [_FINITE, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_REAL_OR_NULL = {"anyOf": [*_REAL["anyOf"], {"type": "null"}]}
_SHAPE = {"type": "array", "items": _COUNT}
_CYCLES_BY_NAME = {"type": "object", "additionalProperties": _COUNT}


def report_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what :func:`nmpsim.report.json.to_json` returns."""
    return {
        "$schema": _DRAFT,
        "$id": SCHEMA,
        "title": "Report of one run of nmpsim",
        **_object(
            schema={"const": SCHEMA},
            program=_said(_TEXT, "name of the network"),
            numerics=_said(_TEXT, "arithmetic profile that was asked for; each layer has its own"),
            engine=_TEXT,
            cycles=_COUNT,
            seconds=_said(_SHARE, "cycles at the device's clock"),
            host_seconds=_said(_SHARE, "wall time of the simulation"),
            trap=_or_null("trap"),
            contract={"$ref": "#/$defs/contract"},
            notes=_list(_TEXT, "what a reader should know about the numbers"),
            outputs={"type": "object", "additionalProperties": {"$ref": "#/$defs/output"}},
            layers=_list({"$ref": "#/$defs/layer"}, "in the order in which they ran"),
            shadow=_said(_or_null("shadow"), "where errors come from, where it was asked for"),
            sensitivity=_said(
                _or_null("sensitivity"), "what assumed numbers do to cycles, likewise"
            ),
            histograms=_list({"$ref": "#/$defs/histogram"}, "of chosen layers' outputs"),
            memory=_list({"$ref": "#/$defs/memory_block"}, "what lies where in DRAM"),
            timeline=_said(_or_null("timeline"), "what the units did when, where asked for"),
            scratchpads=_list({"$ref": "#/$defs/scratchpad_block"}, "what layers put there"),
            device=_said(
                {
                    "type": "object",
                    "additionalProperties": {**_WHOLE, "type": ["integer", "string"]},
                },
                "the device's settings",
            ),
            sources=_said(
                {"type": "object", "additionalProperties": _TEXT},
                "where each setting is from: published, measured, assumed, given",
            ),
        ),
        "$defs": {
            "trap": _trap(),
            "contract": _contract(),
            "violation": _violation(),
            "output": _output(),
            "values": _values(),
            "layer": _layer(),
            "saturation": _saturation(),
            "shadow": _shadow(),
            "float_weight": _float_weight(),
            "shadow_layer": _shadow_layer(),
            "split": _split(),
            "error_size": _error_size(),
            "sensitivity": _sensitivity(),
            "setting_effect": _setting_effect(),
            "moved_setting": _moved_setting(),
            "skipped_setting": _object(setting=_TEXT, reason=_TEXT),
            "histogram": _histogram(),
            "memory_block": _memory_block(),
            "timeline": _timeline(),
            "scratchpad_block": _scratchpad_block(),
        },
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _said(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _or_null(name: str) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/{name}"}]}


def _list(items: dict[str, Any], description: str) -> dict[str, Any]:
    return {"type": "array", "items": items, "description": description}


def _trap() -> dict[str, Any]:
    return _object(
        kind={"enum": ["trap", "deadlock", "cycle_limit", "timeout", "contract"]},
        message=_TEXT,
        core=_WHOLE_OR_NULL,
        pc=_WHOLE_OR_NULL,
        cause=_said(_WHOLE_OR_NULL, "mcause"),
        value=_said(_WHOLE_OR_NULL, "mtval: the address or word at fault"),
        instruction=_TEXT_OR_NULL,
        layer=_TEXT_OR_NULL,
        line=_said(_WHOLE_OR_NULL, "line of the layer in the LIR text"),
    )


def _contract() -> dict[str, Any]:
    return _object(
        status=_said(
            {"enum": ["proved", "checked", "violated", "not_checked"]},
            "proved: for every input; checked: for this run",
        ),
        message=_said(_TEXT, "why it was not checked, or what could not be"),
        violation=_or_null("violation"),
    )


def _violation() -> dict[str, Any]:
    return _object(
        code=_TEXT,
        category=_TEXT,
        case=_said(_TEXT, "which of the cases of docs/isa.md"),
        message=_TEXT,
        hint=_TEXT,
        core=_said(_WHOLE_OR_NULL, "null: the host"),
        pc=_WHOLE_OR_NULL,
        instruction=_TEXT_OR_NULL,
        layer=_TEXT_OR_NULL,
        line=_said(_WHOLE_OR_NULL, "line of the layer in the LIR text"),
        operand=_TEXT,
        first=_said(_COUNT, "address of the first byte concerned"),
        last=_said(_COUNT, "address of the last one"),
        tensor=_said(_TEXT_OR_NULL, "what lies there in DRAM"),
        other_core=_said(_WHOLE_OR_NULL, "of the earlier instruction, where there are two"),
        other_pc=_WHOLE_OR_NULL,
        other_instruction=_TEXT_OR_NULL,
        other_layer=_TEXT_OR_NULL,
    )


def _output() -> dict[str, Any]:
    return _object(
        elem=_TEXT,
        shape=_SHAPE,
        scale=_said(_REAL_OR_NULL, "a value stands for scale * (value - offset)"),
        offset=_WHOLE_OR_NULL,
        values={"$ref": "#/$defs/values"},
    )


def _values() -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "array", "items": {"$ref": "#/$defs/values"}},
            {"type": "boolean"},
            *_REAL["anyOf"],
        ],
        "description": "lists nested as the shape says",
    }


def _layer() -> dict[str, Any]:
    return _object(
        index=_COUNT,
        name=_TEXT,
        op=_TEXT,
        placement={"enum": ["device", "host"]},
        reason=_said(_TEXT, "why the host did it; empty on the device"),
        numerics=_said(_TEXT, "arithmetic profile; empty where none plays a part"),
        number=_said(_COUNT, "number of the instruction in the LIR"),
        line=_said(_COUNT, "its line in the LIR text, 0 if unknown"),
        fused=_list(_TEXT, "names of the LIR instructions that became this layer"),
        shape=_SHAPE,
        elem=_TEXT,
        scale=_REAL_OR_NULL,
        offset=_WHOLE_OR_NULL,
        cycles=_COUNT,
        macs=_COUNT,
        utilization=_said(_SHARE, "of the device's MAC arrays"),
        bytes=_object(read=_COUNT, written=_COUNT),
        bursts=_COUNT,
        burst_efficiency=_said(_SHARE, "bytes moved / bytes of bursts"),
        row_misses=_COUNT,
        bound=_object(
            kind={"enum": ["compute", "memory", "none"]},
            cycles=_said(_COUNT, "that no schedule of the layer's instructions can beat"),
            formula=_said(_TEXT, "of the bound, with its numbers"),
            mac=_COUNT,
            vector=_COUNT,
            memory=_COUNT,
        ),
        distance=_said({**_SHARE, "type": ["number", "null"]}, "cycles / cycles of the bound"),
        core_cycles=_said(_CYCLES_BY_NAME, "core cycles by cause"),
        stalls=_said(_CYCLES_BY_NAME, "core cycles by what the control core did"),
        busy=_said(_CYCLES_BY_NAME, "unit cycles by unit"),
        elements=_said(_COUNT, "results that passed a clip"),
        saturation=_list(
            {"$ref": "#/$defs/saturation"}, "what saturated or was clipped, by stage and side"
        ),
    )


def _saturation() -> dict[str, Any]:
    pair = {"type": "array", "prefixItems": [_COUNT, _COUNT], "minItems": 2, "maxItems": 2}
    return _object(
        stage=_said(_TEXT, "activation is clipping that the network asks for"),
        side={"enum": ["low", "high"]},
        count=_COUNT,
        elements=_said(_COUNT, "results of the layer that passed a clip"),
        worst=_said(_COUNT, "largest overshoot, in units of the last place"),
        first=_said(_SHAPE, "coordinates of the first value in the layer's output"),
        channels=_list(pair, "(channel, count) of every channel concerned"),
    )


def _shadow() -> dict[str, Any]:
    return _object(
        schema={"const": SHADOW_SCHEMA},
        float_weights=_said(_TEXT_OR_NULL, "file of the float weights"),
        constants=_list({"$ref": "#/$defs/float_weight"}, "constants with their float values"),
        unmatched=_list(_TEXT, "quantized constants without float values"),
        layers=_list({"$ref": "#/$defs/shadow_layer"}, "in program order"),
    )


def _float_weight() -> dict[str, Any]:
    return _object(
        constant=_TEXT,
        source=_said(_TEXT, "name of the float array"),
        how=_said(_TEXT, "by what it was found"),
        layout=_said(_TEXT, "what brought it into the LIR's layout"),
        sqnr_db=_said(_REAL, "of the constant against the array"),
        worst_error=_said(_REAL, "largest absolute error"),
        largest=_said(_REAL, "largest absolute float value"),
    )


def _shadow_layer() -> dict[str, Any]:
    return _object(
        index=_said(_COUNT, "position in the report's layers"),
        number=_said(_COUNT, "number of the instruction in the LIR"),
        name=_TEXT,
        not_compared=_said(_TEXT, "why it is not known"),
        accumulated=_said(_or_null("error_size"), "against the float network"),
        layer_alone=_said(_or_null("error_size"), "against the layer in float on its inputs"),
        rounding_alone=_said(_or_null("error_size"), "likewise, with the quantized weights"),
        bias_alone=_said(_or_null("error_size"), "what quantizing the bias does"),
        split=_or_null("split"),
    )


def _split() -> dict[str, Any]:
    return _object(
        inherited=_said(_or_null("error_size"), "from earlier layers"),
        bias=_said(_or_null("error_size"), "from quantizing the bias"),
        weights=_said(_or_null("error_size"), "from quantizing the weights"),
        saturation={"$ref": "#/$defs/error_size"},
        rescale={"$ref": "#/$defs/error_size"},
    )


def _error_size() -> dict[str, Any]:
    return _object(
        sqnr_db=_said(_REAL, "signal to quantization noise"),
        mean_units=_said(_REAL_OR_NULL, "mean absolute error in units of the last place"),
        worst_units=_said(_REAL_OR_NULL, "largest absolute error, likewise"),
    )


def _sensitivity() -> dict[str, Any]:
    return _object(
        schema={"const": SENSITIVITY_SCHEMA},
        cycles=_said(_COUNT, "of the run with the device's own settings"),
        share=_said(_FINITE, "by which settings were moved, where they can be"),
        effects=_list({"$ref": "#/$defs/setting_effect"}, "largest effect first"),
        skipped=_list({"$ref": "#/$defs/skipped_setting"}, "assumed settings that were not moved"),
    )


def _setting_effect() -> dict[str, Any]:
    return _object(
        setting=_TEXT,
        value=_said(_COUNT, "the device's own"),
        lower=_or_null("moved_setting"),
        higher=_or_null("moved_setting"),
        program={"enum": ["same", "recompiled"]},
        effect=_said(_SHARE, "larger change, as a share of the cycles"),
    )


def _moved_setting() -> dict[str, Any]:
    return _object(
        value=_COUNT,
        cycles=_said(_WHOLE_OR_NULL, "of the whole run; null if it does not fit or trapped"),
    )


def _histogram() -> dict[str, Any]:
    return _object(
        index=_said(_COUNT, "position in the report's layers"),
        name=_TEXT,
        low=_said(_FINITE, "where the first bin begins, in stored units"),
        width=_said(_SHARE, "of each bin"),
        counts=_list(_COUNT, "values in each bin"),
        not_finite=_said(_COUNT, "infinities and NaN"),
    )


def _memory_block() -> dict[str, Any]:
    return _object(
        name=_TEXT,
        kind={"enum": ["program", "input", "output", "activation"]},
        address=_COUNT,
        nbytes=_COUNT,
        first=_said(_COUNT, "index of the first layer that uses it"),
        last=_said(_COUNT, "index of the last one"),
    )


def _scratchpad_block() -> dict[str, Any]:
    return _object(
        layer=_said(_COUNT, "index of the layer that put something there"),
        kind={"enum": ["loaded", "computed", "both"]},
        begin=_said(_COUNT, "first byte, from the begin of the scratchpad"),
        end=_said(_COUNT, "byte after the last"),
        cores=_said(_COUNT, "how many cores' scratchpads"),
    )


def _timeline() -> dict[str, Any]:
    unit = {"enum": list(UNITS)}
    layer = {**_COUNT, "type": ["integer", "null"]}
    items = [_COUNT, unit, layer, _COUNT, _COUNT, _COUNT]
    span = {"type": "array", "prefixItems": items, "minItems": 6, "maxItems": 6}
    return _object(
        resolution=_said(_COUNT, "pauses of at most this many cycles do not end a span"),
        spans=_list(span, "core, unit, layer, first cycle, cycle after the last, busy cycles"),
    )
