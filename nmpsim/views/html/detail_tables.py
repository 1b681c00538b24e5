"""Tables of what is told next to the layers: the device, sensitivity, errors."""

from __future__ import annotations

from nmpsim.report.data import RunReport
from nmpsim.views.html.tables import Table, table_of
from nmpsim.views.measures import INDEX, Measure, Number


def settings_table(report: RunReport) -> Table:
    """The device, number by number, and where each is from."""
    rows = (
        {"setting": name, "value": value, "source": report.sources.get(name, "")}
        for name, value in report.device.items()
    )
    return table_of(
        rows,
        Measure("setting", meaning="section and key of the device file"),
        Number("value", meaning="of the device of this run"),
        Measure("source", meaning="published, measured, assumed or given"),
    )


def sensitivity_table(report: RunReport) -> Table | None:
    """What assumed numbers of the device do to the cycles; None if nobody asked."""
    if report.sensitivity is None:
        return None
    return table_of(
        report.sensitivity.effects,
        Measure("setting", meaning="an assumed number of the device"),
        Number("value", meaning="the device's own"),
        Number("lower", "lower.value", meaning="a lower value"),
        Number("cycles then", "lower.cycles", meaning="of the whole run with the lower value"),
        Number("higher", "higher.value", meaning="a higher value"),
        Number("cycles then", "higher.cycles", meaning="of the whole run with the higher value"),
        Number("effect", meaning="the larger change, as a share of the cycles"),
    )


def shadow_table(report: RunReport) -> Table | None:
    """How exact each layer is; None if nobody asked."""
    if report.shadow is None:
        return None
    measures = {
        "accumulated": "error against the float network",
        "layer_alone": "error against this layer in float on its actual inputs",
        "rounding_alone": "error against this layer in real arithmetic, weights quantized",
        "bias_alone": "what quantizing the bias does",
    }
    return table_of(
        report.shadow.layers,
        INDEX,
        Measure(
            "layer",
            lambda layer: report.layers[layer.index].display_name,
            meaning="its display name",
        ),
        *(
            Number(
                f"{name.replace('_', ' ')}, dB",
                f"{name}.sqnr_db",
                meaning=f"{meaning}: signal to noise",
            )
            for name, meaning in measures.items()
        ),
    )
