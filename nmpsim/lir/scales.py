"""Exact scales: the text prints nine decimals, but arithmetic needs Glow's float32 values.

They come from a sidecar file (``X.tensors.json``) or, when every scale prints as a power of two
does, are taken to be one. Whatever is found must print as the text does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.diagnostics import Diagnostic, Place, UserError, fail, quote
from nmpsim.input_files import read_text
from nmpsim.lir.constraints import have_equal_quantization
from nmpsim.lir.nodes import Module, Quantization, SourcePosition, TensorType
from nmpsim.lir.printer import format_scale
from nmpsim.records import frozen

_NAMES_IN_WARNING = 5


@frozen
class SidecarScale:
    """Exact scale and offset of a tensor in a sidecar file."""

    key: str
    scale: float
    offset: int


def read_scales_file(path: Path) -> dict[str, Any]:
    """Read a sidecar file of scales; return its JSON object."""
    place = Place(str(path))
    try:
        content = json.loads(read_text(path, "scales file", code="CONST004"))
    except json.JSONDecodeError as error:
        message = "the scales file is not JSON"
        place = Place(str(path), error.lineno, error.colno)
        found, expected = quote(error.msg), '{"const/NAME": {"scale": ...}}'
        raise fail("CONST004", message, place=place, found=found, expected=expected) from None
    except (ValueError, RecursionError) as error:  # an absurd number, an absurd depth
        message = "the scales file is invalid"
        found, expected = quote(str(error)), '{"const/NAME": {"scale": ...}}'
        raise fail("CONST004", message, place=place, found=found, expected=expected) from None
    if not isinstance(content, dict):
        raise fail(
            "CONST004",
            "the scales file does not contain a JSON object",
            place=place,
            found=f"a JSON {type(content).__name__}",
            expected='{"const/NAME": {"scale": ...}}',
        )
    return content


def resolve_exact_scales(
    module: Module, tensors: Mapping[str, Any] | None, tensors_file: Path | None = None
) -> tuple[Module, tuple[str, ...]]:
    """Replace a module's printed scales by exact ones, read or inferred; return it and warnings.

    ``tensors`` is a sidecar's content. A scale not in it is a power of two if all scales of the
    module print as one, or the only float32 that prints so, or another one of the sidecar that
    does. Raises ``UserError`` (CONST004) when the sidecar and the text do not belong together.
    """
    place = None if tensors_file is None else Place(str(tensors_file))
    return apply_scales(module, parse_scales(tensors or {}, place))


def apply_scales(
    module: Module, scales: Mapping[str, SidecarScale]
) -> tuple[Module, tuple[str, ...]]:
    """Replace a module's printed scales by exact ones; return the new module and warnings."""
    resolver = _Resolver(module, scales)
    types = iter([resolver.exact(*declaration) for declaration in iterate_types(module)])
    weights = tuple(attrs.evolve(weight, type=next(types)) for weight in module.weights)
    instructions = tuple(
        attrs.evolve(i, attributes={**i.attributes, "Ty": next(types)})
        if isinstance(i.attributes.get("Ty"), TensorType)
        else i
        for i in module.instructions
    )
    if resolver.problems:
        raise UserError(resolver.problems)
    return attrs.evolve(module, weights=weights, instructions=instructions), resolver.warnings()


def find_inexact_scales(module: Module, scales: Mapping[str, SidecarScale]) -> frozenset[str]:
    """Return the names of tensors whose exact scale is unknown.

    ``module`` is as it was parsed, ``scales`` are a sidecar's.
    """
    resolver = _Resolver(module, scales)
    for declaration in iterate_types(module):
        resolver.exact(*declaration)
    return frozenset(resolver.missing)


def iterate_types(module: Module) -> Iterator[tuple[str, TensorType, SourcePosition, str | None]]:
    """Yield (name, type, position, viewed tensor or None) of each weight, buffer and view."""
    for weight in module.weights:
        yield weight.name, weight.type, weight.span, None
    for instruction in module.instructions:
        type = instruction.attributes.get("Ty")
        if isinstance(type, TensorType):
            viewed = instruction.operands[0].name if instruction.operands else None
            yield instruction.name, type, instruction.span, viewed


def round_to_float32(value: float) -> float:
    """Round a number to float32, or to an infinity if it exceeds the range of float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def find_power_of_two(scale: float) -> float | None:
    """Return the power of two with the same nine decimals as a scale, or None if there is none."""
    if not (math.isfinite(scale) and scale > 0):
        return None
    power = math.ldexp(1.0, round(math.log2(scale)))
    return power if format_scale(power) == format_scale(scale) else None


def find_unique_float32(scale: float) -> float | None:
    """Return the only float32 with the same nine decimals as a scale, or None if not exactly one.

    Nine decimals tell float32 values apart from about 0.0084 on.
    """
    nearest = np.float32(round_to_float32(scale))
    if not np.isfinite(nearest) or format_scale(float(nearest)) != format_scale(scale):
        return None
    neighbours = (np.nextafter(nearest, np.float32(end)) for end in (-np.inf, np.inf))
    if any(format_scale(float(n)) == format_scale(scale) for n in neighbours):
        return None
    return float(nearest)


def parse_scales(tensors: Mapping[str, Any], place: Place | None) -> dict[str, SidecarScale]:
    """Parse the content of a sidecar file; return the exact scales by tensor name.

    An entry may say its ``name`` itself, as it has to where that holds ``/`` or ``:``.
    """
    scales: dict[str, SidecarScale] = {}
    for key, entry in tensors.items():
        if isinstance(entry, Mapping) and ("scale" in entry or "scale_hex" in entry):
            own = entry.get("name")
            name = own if isinstance(own, str) else key.rpartition("/")[2].rpartition(":")[2]
            scales.setdefault(name, _exact_scale(key, entry, place))
    return scales


def _exact_scale(key: str, entry: Mapping[str, Any], place: Place | None) -> SidecarScale:
    try:
        if "scale_hex" in entry:
            scale = float.fromhex(entry["scale_hex"])
        else:
            scale = float(entry["scale"])
        return SidecarScale(key, round_to_float32(scale), int(entry["offset"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise fail(
            "CONST004",
            f"the scale of {quote(key)} is invalid",
            place=place,
            found=quote(str(dict(entry))),
            expected='an object with "offset", and "scale" or "scale_hex"',
        ) from None


class _Resolver:
    """Resolver of the exact scales of tensors, one after the other."""

    def __init__(self, module: Module, scales: Mapping[str, SidecarScale]) -> None:
        self._file = module.file
        printed = (type.quant.scale for _, type, _, _ in iterate_types(module) if type.quant)
        self._all_powers = all(scale == 0 or find_power_of_two(scale) for scale in printed)
        self._scales = scales
        self._printed: dict[tuple[str, int | None], set[float]] = {}
        for exact in scales.values():
            text = format_scale(exact.scale)
            for offset in (exact.offset, None):
                self._printed.setdefault((text, offset), set()).add(exact.scale)
        self._types: dict[str, TensorType] = {}
        self.missing: list[str] = []
        self.problems: list[Diagnostic] = []

    def exact(
        self, name: str, type: TensorType, span: SourcePosition, viewed: str | None
    ) -> TensorType:
        """Return the type with its exact scale."""
        if type.quant is not None:
            scale = self._scale(name, type, type.quant, span, viewed)
            type = attrs.evolve(type, quant=attrs.evolve(type.quant, scale=scale))
        self._types[name] = type
        return type

    def warnings(self) -> tuple[str, ...]:
        """Return one warning for all tensors whose exact scale is unknown."""
        if not self.missing:
            return ()
        names = ", ".join(f"%{quote(name)}" for name in self.missing[:_NAMES_IN_WARNING])
        more = len(self.missing) - _NAMES_IN_WARNING
        names += f" and {more} more" if more > 0 else ""
        return (
            f"the exact scales of {names} are unknown: the nine printed decimals are used, so"
            " results"
            " can differ in the last bit; pass the exact scales with --tensors FILE",
        )

    def _scale(
        self,
        name: str,
        type: TensorType,
        quant: Quantization,
        span: SourcePosition,
        viewed: str | None,
    ) -> float:
        source = self._types.get(viewed) if viewed is not None else None
        if (
            source is not None
            and source.quant is not None
            and have_equal_quantization(source, type)
        ):
            return source.quant.scale
        named = self._scales.get(name)
        if named is not None:
            self._compare(name, named, quant, span)
            return named.scale
        by_text = self._by_text(quant)
        if by_text is None:
            self.missing.append(name)
            return round_to_float32(quant.scale)
        return by_text

    def _by_text(self, quant: Quantization) -> float | None:
        """Return the scale that the printed decimals determine, or None."""
        if quant.scale == 0:
            return 0.0
        by_value = (
            find_power_of_two(quant.scale) if self._all_powers else find_unique_float32(quant.scale)
        )
        if by_value is not None:
            return by_value
        for offset in (quant.offset, None):
            candidates = self._printed.get((format_scale(quant.scale), offset), set())
            if len(candidates) == 1:
                return next(iter(candidates))
        return None

    def _compare(
        self, name: str, exact: SidecarScale, quant: Quantization, span: SourcePosition
    ) -> None:
        found = f"scale {format_scale(exact.scale)}, offset {exact.offset}"
        expected = f"scale {format_scale(quant.scale)}, offset {quant.offset}"
        if found != expected:
            message = f"the scales file and the LIR text differ in the scale of %{quote(name)}"
            place = span.place(self._file)
            hint = (
                f"Pass the scales file of this program; {quote(exact.key)} may be from"
                " another program."
            )
            self.problems.append(Diagnostic("CONST004", message, place, found, expected, hint))
