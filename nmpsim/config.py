"""The device configuration, read from a TOML file and validated.

``nmp.toml`` next to this module is the default device; a user's file overrides settings. The source
of each number is part of the configuration and of the report.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nmpsim.diagnostics import Diagnostic, Place, UserError, did_you_mean, fail, suggest_name
from nmpsim.energy.tables import EstimateTable, make_estimate_table, pop_estimates
from nmpsim.input_files import read_toml
from nmpsim.records import frozen

SOURCES = ("published", "measured", "assumed", "given")
_ENTRY_KEYS = ("value", "source", "note")


@frozen
class SettingRange:
    """Valid range of a setting, and whether it must be a power of two or a multiple of a number."""

    low: int
    high: int
    power_of_two: bool = False
    multiple_of: int = 1
    at_most: str = ""
    """Name of a setting that the value must not exceed."""
    excess: str = ""
    """Message about a value that exceeds it."""


SETTINGS = {
    name: SettingRange(**row)
    for name, row in tomllib.loads(
        Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")
    ).items()
}
"""Name of a setting -> its valid range."""


@attrs.frozen(kw_only=True)
class DeviceConfig:
    """Configuration of a device, with settings named ``section_key`` as in the TOML file.

    All cycles are cycles of the device's single clock.
    """

    name: str
    cores_count: int
    cores_clock_mhz: int
    control_taken_branch_cycles: int
    control_multiply_cycles: int
    control_divide_cycles: int
    control_scratchpad_access_cycles: int
    control_dram_access_cycles: int
    control_descriptor_cycles: int
    control_descriptor_fetch: int
    scratchpad_bytes: int
    mac_out_lanes: int
    mac_in_lanes: int
    mac_startup_cycles: int
    vector_lanes: int
    vector_startup_cycles: int
    queues_depth: int
    dma_startup_cycles: int
    dma_fill_bytes_per_cycle: int
    dram_bytes: int
    dram_bytes_per_cycle: int
    dram_burst_bytes: int
    dram_latency_cycles: int
    dram_row_bytes: int
    dram_row_miss_cycles: int
    dram_channels: int
    dram_banks: int
    dram_bank_groups: int
    dram_group_burst_cycles: int
    dram_precharge_cycles: int
    dram_activate_cycles: int
    dram_four_activates_cycles: int
    dram_write_recovery_cycles: int
    dram_write_read_cycles: int
    dram_read_write_cycles: int
    dram_refresh_interval_cycles: int
    dram_refresh_cycles: int
    dram_lookahead_cycles: int
    dram_interleave_percent: int
    dram_write_buffer_bursts: int
    dram_write_latency_cycles: int
    dram_multicast: int
    sync_barrier_cycles: int
    sync_semaphore_cycles: int
    host_operation_cycles: int
    host_kilo_mac_cycles: int
    host_kilo_element_cycles: int
    host_kilo_function_cycles: int
    limits_cycles: int
    sources: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    """Source of each setting: published, measured, assumed or given."""
    estimates: EstimateTable = attrs.field(factory=dict, eq=False)
    """Estimates of energy and area in the device file, such as ``energy_mac_int8``."""

    @property
    def all_estimates(self) -> EstimateTable:
        """Estimates of the device file, completed by defaults: energies in pJ, areas in um2."""
        return make_estimate_table(self.settings(), default_device().estimates, self.estimates)

    @property
    def macs_per_cycle(self) -> int:
        """Number of Int8 multiply-accumulate operations of all MAC arrays in one cycle."""
        return self.cores_count * self.mac_out_lanes * self.mac_in_lanes

    def settings(self) -> dict[str, int | str]:
        """Return all settings by name, for a bundle or a report."""
        return {"name": self.name, **{f: getattr(self, f) for f in SETTINGS}}


def format_setting_name(name: str) -> str:
    """Return the TOML key of a setting, such as ``cores.count`` for ``cores_count``."""
    return name.replace("_", ".", 1)


def _sections() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition("_")[0] for name in SETTINGS))


def make_device_config(settings: Mapping[str, Any]) -> DeviceConfig:
    """Return the default device with changed settings; raise UserError for invalid settings.

    A setting with the default's value has the default's source; any other counts as given.

    Parameters
    ----------
    settings
        Values by name, as in a bundle.

    Raises
    ------
    UserError
        DEV002 or DEV003 with all invalid settings.
    """
    flat = _entries_of(default_device())
    for key, value in settings.items():
        if key not in flat or flat[key].value != value:
            flat[key] = _Entry(value)
    return _checked(flat, None)


@functools.cache
def default_device() -> DeviceConfig:
    """Return the default device, the NMP, as described in ``nmp.toml``."""
    document = tomllib.loads(Path(__file__).with_name("nmp.toml").read_text(encoding="utf-8"))
    estimates, wrong = pop_estimates(document, None, SOURCES)
    flat, findings = _flatten(document, None)
    return _checked(flat, None, findings + wrong, estimates)


def resolve_device(config: DeviceConfig | None) -> DeviceConfig:
    """Return ``config``, or the default device if ``config`` is None."""
    if config is None:
        return default_device()
    if not isinstance(config, DeviceConfig):
        raise fail(
            "ARG001",
            "the device has the wrong type",
            found=f"{type(config).__name__} {str(config)[:80]!r}",
            expected="a DeviceConfig",
            hint='Load a file with nmpsim.load_device("D.toml").',
        )
    return config


def load_device(path: Path | str) -> DeviceConfig:
    """Load a device configuration from a TOML file that overrides the defaults.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    UserError
        FILE001, or DEV001 to DEV003 with all problems of the file.
    """
    place = Place(str(path))
    document = read_toml(Path(path), "device file", "DEV001")
    name = _take_preset(document)
    estimates, wrong = pop_estimates(document, place, SOURCES)
    changes, findings = _flatten(document, place)
    findings += wrong
    flat = _entries_of(default_device())
    if name is not None:
        preset, wrong = _preset_entries(name, flat | changes, changes, place)
        flat, findings = flat | preset, findings + wrong
    return _checked(flat | changes, place, findings, estimates)


def _take_preset(document: dict[str, Any]) -> object | None:
    """Remove and return the DRAM preset of a device file."""
    dram = document.get("dram")
    return dram.pop("preset", None) if isinstance(dram, dict) else None


def _preset_entries(
    name: object, flat: Mapping[str, _Entry], changed: Container[str], place: Place
) -> tuple[dict[str, _Entry], list[Diagnostic]]:
    """Yield the settings of a preset at the device's clock, except impossible ones."""
    from nmpsim import dram_presets  # few device files name one

    clock = flat["cores_clock_mhz"].value
    names = dram_presets.list_presets()
    if name not in names:
        near = [known for known in names if known.startswith(str(name))]
        hint = suggest_name(near[0]) if near else did_you_mean(str(name), names)
        message = "unknown [dram] preset"
        found = repr(name)[:80]
        return {}, [Diagnostic("DEV002", message, place, found, ", ".join(names), hint)]
    if not isinstance(clock, int) or clock < 1:
        return {}, []  # it is told as a wrong clock
    entries = {
        f"dram_{key}": _Entry(setting.value, setting.source, place)
        for key, setting in dram_presets.read_preset(str(name), clock).items()
    }
    rate = entries.get("dram_bytes_per_cycle")
    if rate is None or isinstance(rate.value, int) or "dram_bytes_per_cycle" in changed:
        return entries, []
    del entries["dram_bytes_per_cycle"]
    found = f"{float(rate.value):.4g} bytes per cycle at {clock} MHz"
    hint = "Set [dram] bytes_per_cycle, or choose a clock that divides the bandwidth."
    message = f"the bandwidth of {name} is not a whole number of bytes per cycle"
    return entries, [
        Diagnostic("DEV003", message, place, found, "a whole number of bytes per cycle", hint)
    ]


def _entries_of(device: DeviceConfig) -> dict[str, _Entry]:
    return {
        key: _Entry(value, device.sources.get(key, "given"))
        for key, value in device.settings().items()
    }


@frozen
class _Entry:
    """A setting of a device file."""

    value: Any
    source: Any = "given"
    place: Place | None = None


def _flatten(
    document: Mapping[str, Any], place: Place | None
) -> tuple[dict[str, _Entry], list[Diagnostic]]:
    """Return the settings of a document by flat name, and findings about other entries."""
    flat: dict[str, _Entry] = {}
    findings: list[Diagnostic] = []
    for section, content in document.items():
        if section == "name":
            flat[section] = _Entry(content, place=place)
        elif section not in _sections():
            findings.append(_stray(section, content, place))
        elif not isinstance(content, dict):
            found, expected = repr(content)[:80], f"a table: [{section}]"
            message = f"{section} has the wrong type"
            findings.append(Diagnostic("DEV002", message, place, found, expected))
        else:
            for key, given in content.items():
                entry, wrong = _entry(section, key, given, place)
                findings += wrong
                if entry is not None:
                    flat[f"{section}_{key}"] = entry
    return flat, findings


def _entry(
    section: str, key: str, given: object, place: Place | None
) -> tuple[_Entry | None, list[Diagnostic]]:
    """Return a setting from a value or a table; None if it is neither."""
    if f"{section}_{key}" not in SETTINGS:
        return None, [_unknown(f"{section}_{key}", place)]
    if not isinstance(given, dict):
        return _Entry(given, place=place), []
    name = f"[{section}] {key}"
    findings = []
    for word in given:
        if word not in _ENTRY_KEYS:
            findings.append(
                Diagnostic(
                    "DEV002",
                    f"{name} has no key {word!r}",
                    place,
                    repr(word),
                    expected=", ".join(_ENTRY_KEYS),
                    hint=did_you_mean(word, _ENTRY_KEYS),
                )
            )
    if "value" not in given:
        hint = f"Write {key} = {{ value = ..., source = ..., note = ... }}."
        findings.append(Diagnostic("DEV002", f"{name} has no value", place, hint=hint))
        return None, findings
    return _Entry(given["value"], given.get("source", "given"), place), findings


def _stray(word: str, content: object, place: Place | None) -> Diagnostic:
    """Return the finding about a top-level key that is neither ``name`` nor a section."""
    if isinstance(content, dict):
        what = f"section [{word}]"
        meant = [_toml_name(f"{word}_{key}") for key in content if f"{word}_{key}" in SETTINGS]
        known = [f"[{section}]" for section in _sections()]
        meant += difflib.get_close_matches(f"[{word}]", known, 1)
    else:
        what = f"key {word} outside any section"
        meant = [_toml_name(key) for key in difflib.get_close_matches(word, SETTINGS, 1)]
        if difflib.get_close_matches(word, ["name", *SETTINGS], 1) == ["name"]:
            meant = ["name"]
    hint = suggest_name(meant[0]) if meant else "List all settings with `nmpsim device`."
    return Diagnostic("DEV002", f"unknown {what}", place, hint=hint)


def _checked(
    flat: Mapping[str, _Entry],
    file: Place | None,
    before: Sequence[Diagnostic] = (),
    estimates: EstimateTable | None = None,
) -> DeviceConfig:
    """Return the validated device; raise ``UserError`` with earlier findings and its own."""
    findings = list(before)
    for key, entry in flat.items():
        value, place = entry.value, entry.place
        if key == "name":
            if not isinstance(value, str):
                findings.append(_wrong_kind(key, value, "a string", place))
        elif key not in SETTINGS:
            findings.append(_unknown(key, place))
        elif not isinstance(value, int) or isinstance(value, bool):
            findings.append(_wrong_kind(key, value, "a whole number", place))
        else:
            findings += _out_of_range(key, value, SETTINGS[key], place)
        if entry.source not in SOURCES:
            expected = ", ".join(SOURCES)
            message = f"the source of {_toml_name(key)} is unknown"
            found = repr(entry.source)[:80]
            findings.append(Diagnostic("DEV002", message, place, found, expected))
    findings += [
        Diagnostic(
            "DEV002",
            f"setting {_toml_name(key)} is missing",
            file,
            hint="List all settings with `nmpsim device`.",
        )
        for key in ("name", *SETTINGS)
        if key not in flat
    ]
    findings += _contradictions({key: entry.value for key, entry in flat.items()}, file)
    if findings:
        raise UserError(findings)
    values = {key: entry.value for key, entry in flat.items()}
    sources = {key: entry.source for key, entry in flat.items() if key != "name"}
    return DeviceConfig(**values, sources=sources, estimates=estimates or {})


def _contradictions(values: Mapping[str, Any], file: Place | None) -> list[Diagnostic]:
    """Return findings about settings that exceed another one."""
    findings = []
    for small, limits in SETTINGS.items():
        low, high = values.get(small), values.get(limits.at_most)
        if isinstance(low, int) and isinstance(high, int) and low > high:
            unit = small.rpartition("_")[2]
            hint = f"Decrease {_toml_name(small)} or increase {_toml_name(limits.at_most)}."
            found = f"{_toml_name(small)} = {low} {unit}"
            expected = f"at most {high} {unit}, the value of {_toml_name(limits.at_most)}"
            findings.append(Diagnostic("DEV003", limits.excess, file, found, expected, hint))
    return findings


def _toml_name(key: str) -> str:
    section, _, rest = key.partition("_")
    return f"[{section}] {rest}" if rest else section


def _unknown(key: str, place: Place | None) -> Diagnostic:
    near = difflib.get_close_matches(key, ["name", *SETTINGS], 1)
    hint = suggest_name(_toml_name(near[0])) if near else "List all settings with `nmpsim device`."
    return Diagnostic("DEV002", f"unknown setting {_toml_name(key)}", place, hint=hint)


def _wrong_kind(key: str, value: object, expected: str, place: Place | None) -> Diagnostic:
    return Diagnostic(
        "DEV002", f"{_toml_name(key)} has the wrong type", place, repr(value)[:80], expected
    )


def _out_of_range(
    key: str, value: int, limits: SettingRange, place: Place | None
) -> list[Diagnostic]:
    hint, problem = None, "is out of range"
    if not limits.low <= value <= limits.high:
        expected = f"{limits.low} to {limits.high}"
    elif limits.power_of_two and value.bit_count() != 1:
        expected = "a power of two"
        problem = f"is not {expected}"
        hint = f"Use {1 << (value.bit_length() - 1)} or {1 << value.bit_length()}."
    elif value % limits.multiple_of:
        expected, down = f"a multiple of {limits.multiple_of}", value // limits.multiple_of
        problem = f"is not {expected}"
        hint = f"Use {down * limits.multiple_of} or {(down + 1) * limits.multiple_of}."
    else:
        return []
    message = f"{_toml_name(key)} {problem}"
    return [Diagnostic("DEV003", message, place, str(value), expected, hint)]
