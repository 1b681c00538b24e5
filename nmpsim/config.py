"""The device as a frozen value, read from a TOML file and checked once.

``nmp.toml`` beside this module is the default device and the only place of its numbers; a user's
file changes what it names. Where each number comes from travels with it into the report.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from nmpsim.diagnostics import Diagnostic, Place, UserError, fail

SOURCES = ("published", "measured", "assumed", "given")


@attrs.frozen
class Limits:
    """Range of a setting; ``power_of_two`` where addresses are cut by it."""

    low: int
    high: int
    power_of_two: bool = False


def _setting(low: int, high: int, *, power_of_two: bool = False) -> Any:
    return attrs.field(metadata={"limits": Limits(low, high, power_of_two)})


@attrs.frozen(kw_only=True)
class DeviceConfig:
    """Every number of a device; names are ``section_key`` of the TOML file.

    Cycles are cycles of the device's one clock.
    """

    name: str
    cores_count: int = _setting(1, 64)
    cores_clock_mhz: int = _setting(1, 100_000)
    control_taken_branch_cycles: int = _setting(0, 1000)
    control_multiply_cycles: int = _setting(0, 1000)
    control_divide_cycles: int = _setting(0, 1000)
    control_scratchpad_access_cycles: int = _setting(0, 1000)
    control_dram_access_cycles: int = _setting(0, 100_000)
    control_descriptor_cycles: int = _setting(0, 100_000)
    scratchpad_bytes: int = _setting(4096, 1 << 26)
    mac_out_lanes: int = _setting(1, 1024)
    mac_in_lanes: int = _setting(1, 1024)
    mac_startup_cycles: int = _setting(0, 100_000)
    vector_lanes: int = _setting(1, 1024)
    vector_startup_cycles: int = _setting(0, 100_000)
    queues_depth: int = _setting(1, 16)
    dma_startup_cycles: int = _setting(0, 100_000)
    dma_fill_bytes_per_cycle: int = _setting(1, 4096)
    dram_bytes: int = _setting(1 << 20, 0x7FFF_0000)
    dram_bytes_per_cycle: int = _setting(1, 4096)
    dram_burst_bytes: int = _setting(4, 4096, power_of_two=True)
    dram_latency_cycles: int = _setting(0, 100_000)
    dram_row_bytes: int = _setting(64, 1 << 20, power_of_two=True)
    dram_row_miss_cycles: int = _setting(0, 100_000)
    sync_barrier_cycles: int = _setting(0, 100_000)
    sync_semaphore_cycles: int = _setting(0, 100_000)
    limits_cycles: int = _setting(1, 1 << 62)
    sources: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    """Setting -> published, measured, assumed or given."""

    @property
    def macs_per_cycle(self) -> int:
        """Int8 multiplications that all MAC arrays can do in a cycle."""
        return self.cores_count * self.mac_out_lanes * self.mac_in_lanes

    def settings(self) -> dict[str, int | str]:
        """All settings by name, for a bundle or a report."""
        return {"name": self.name, **{f: getattr(self, f) for f in setting_names()}}


def setting_names() -> tuple[str, ...]:
    """Names of the numeric settings, in the order of the class."""
    return tuple(a.name for a in attrs.fields(DeviceConfig) if "limits" in a.metadata)


def from_settings(settings: Mapping[str, Any]) -> DeviceConfig:
    """The device of flat settings, as a bundle has them; the default's where one is missing.

    A setting that is the default's has its source, any other counts as given.
    """
    base = default_device()
    flat: dict[str, tuple[Any, str, Place | None]] = {
        key: (value, base.sources.get(key, "given"), None) for key, value in base.settings().items()
    }
    for key, value in settings.items():
        if key not in flat or flat[key][0] != value:
            flat[key] = (value, "given", None)
    return _checked(flat, None)


@functools.cache
def default_device() -> DeviceConfig:
    """The NMP as ``nmp.toml`` describes it."""
    text = resources.files("nmpsim").joinpath("nmp.toml").read_text(encoding="utf-8")
    return _checked(_flatten(tomllib.loads(text), None), None)


def load_device(path: Path) -> DeviceConfig:
    """The default device with the changes that a TOML file makes.

    Raises :class:`UserError` (FILE001, DEV001 to DEV003) with every finding at once.
    """
    place = Place(str(path))
    try:
        raw = path.read_bytes().decode("utf-8-sig")
        document = tomllib.loads(raw.replace("\r\n", "\n"))
    except OSError as error:
        raise fail(
            "FILE001", "cannot read the device file", place=place, found=error.strerror
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise fail(
            "DEV001",
            "the device file is not TOML",
            place=place,
            found=error,
            expected="TOML 1.0, UTF-8",
        ) from error
    base = default_device()
    flat: dict[str, tuple[Any, str, Place | None]] = {
        key: (value, base.sources.get(key, "given"), None) for key, value in base.settings().items()
    }
    return _checked(flat | _flatten(document, place), place)


def _flatten(
    document: Mapping[str, Any], place: Place | None
) -> dict[str, tuple[Any, str, Place | None]]:
    flat: dict[str, tuple[Any, str, Place | None]] = {}
    for key, value, source in _entries(document):
        flat[key] = (value, source, place)
    return flat


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for section, content in document.items():
        if not isinstance(content, dict):
            yield section, content, "given"
            continue
        for key, entry in content.items():
            if isinstance(entry, dict):
                yield f"{section}_{key}", entry.get("value"), entry.get("source", "given")
            else:
                yield f"{section}_{key}", entry, "given"


def _checked(flat: Mapping[str, tuple[Any, str, Place | None]], file: Place | None) -> DeviceConfig:
    fields = {a.name: a for a in attrs.fields(DeviceConfig) if a.name != "sources"}
    findings: list[Diagnostic] = []
    for key, (value, source, place) in flat.items():
        if key not in fields:
            findings.append(_unknown(key, place, list(fields)))
        elif key == "name":
            if not isinstance(value, str):
                findings.append(_wrong_kind(key, value, "a string", place))
        elif not isinstance(value, int) or isinstance(value, bool):
            findings.append(_wrong_kind(key, value, "a whole number", place))
        else:
            findings += _out_of_range(key, value, fields[key].metadata["limits"], place)
        if source not in SOURCES:
            findings.append(_wrong_kind(f"{key} (source)", source, ", ".join(SOURCES), place))
    findings += [
        Diagnostic("DEV002", f"setting {_toml_name(key)} is missing", file)
        for key in fields
        if key not in flat
    ]
    findings += _contradictions({key: entry[0] for key, entry in flat.items()}, file)
    if findings:
        raise UserError(findings)
    values = {key: value for key, (value, _, _) in flat.items()}
    sources = {key: source for key, (_, source, _) in flat.items() if key != "name"}
    return DeviceConfig(**values, sources=sources)


def _contradictions(values: Mapping[str, Any], file: Place | None) -> list[Diagnostic]:
    """Settings that are possible, but not together."""
    burst, row = values.get("dram_burst_bytes"), values.get("dram_row_bytes")
    if isinstance(burst, int) and isinstance(row, int) and burst > row:
        return [
            Diagnostic(
                "DEV003",
                "a DRAM burst is longer than a DRAM row",
                file,
                f"{burst} bytes",
                f"at most {row} bytes",
            )
        ]
    return []


def _toml_name(key: str) -> str:
    section, _, rest = key.partition("_")
    return f"[{section}] {rest}" if rest else section


def _unknown(key: str, place: Place | None, known: list[str]) -> Diagnostic:
    import difflib

    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {_toml_name(near[0])}?" if near else "`nmpsim device` prints all settings"
    return Diagnostic("DEV002", f"unknown setting {_toml_name(key)}", place, hint=hint)


def _wrong_kind(key: str, value: object, expected: str, place: Place | None) -> Diagnostic:
    return Diagnostic(
        "DEV002", f"{_toml_name(key)} is of the wrong kind", place, repr(value)[:80], expected
    )


def _out_of_range(key: str, value: int, limits: Limits, place: Place | None) -> list[Diagnostic]:
    if not limits.low <= value <= limits.high:
        expected = f"{limits.low} to {limits.high}"
    elif limits.power_of_two and value.bit_count() != 1:
        expected = "a power of two"
    elif key == "scratchpad_bytes" and value % 64:
        expected = "a multiple of 64"
    else:
        return []
    return [Diagnostic("DEV003", f"{_toml_name(key)} is out of range", place, str(value), expected)]
