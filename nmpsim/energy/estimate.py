"""Numbers with a range, for the energy and the area of a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from nmpsim.records import frozen


@frozen
class Estimate:
    """Estimate of an energy or an area: a best known value with a range and a source."""

    low: Annotated[float, "lower end of the range"]
    value: Annotated[float, "best known value"]
    high: Annotated[float, "upper end of the range"]
    source: Annotated[str, "`published`, `measured`, `assumed` or `given`"] = "assumed"

    def multiply(self, factor: float) -> Estimate:
        """Multiply value and range by ``factor``; return an estimate with the same source."""
        return Estimate(self.low * factor, self.value * factor, self.high * factor, self.source)


NOTHING = Estimate(0.0, 0.0, 0.0, "given")
"""Estimate of an empty sum."""


def add_estimates(estimates: Iterable[Estimate]) -> Estimate:
    """Add estimates; the source of the sum is ``assumed`` if that of any nonzero term is."""
    terms = [one for one in estimates if one.high]
    sources = {one.source for one in terms}
    source = "assumed" if "assumed" in sources else min(sources, default=NOTHING.source)
    return Estimate(
        sum(one.low for one in terms),
        sum(one.value for one in terms),
        sum(one.high for one in terms),
        source,
    )
