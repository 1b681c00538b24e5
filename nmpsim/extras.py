"""Packages: the error where one is missing, and how it is installed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from nmpsim.diagnostics import Place, UserError, fail


def missing(
    error: ImportError,
    extra: str,
    message: str,
    *,
    place: Place | None = None,
    instead: str | None = None,
) -> UserError:
    """PKG001 for a package of an extra that is not there; ``instead`` is what does without it."""
    hint = install_command(extra)
    return fail(
        "PKG001",
        message,
        place=place,
        found=f"{error.name} is not installed" if error.name else str(error),
        hint=hint if instead is None else f"{hint}; {instead}",
    )


def incomplete(package: str) -> UserError:
    """PKG001 for a package that nmpsim itself is installed with, and that is gone."""
    return fail(
        "PKG001",
        "a package is missing that nmpsim cannot do without",
        found=f"{package} is not installed",
        hint=_install(package),
    )


def install_command(extra: str) -> str:
    """The command that installs an extra from where this nmpsim was installed from.

    A bare name would ask an index, where it may be somebody else's. pip notes a folder, a wheel or
    a repository in ``direct_url.json`` (PEP 610), and nothing if the package came from an index.
    """
    import json  # all of this imports much, and few errors need it
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit

    try:
        noted = distribution("nmpsim").read_text("direct_url.json")
    except PackageNotFoundError:  # the sources themselves are on the path
        return _install(f"{Path(__file__).parents[1]}[{extra}]")
    if noted is None:
        return _install(f"nmpsim[{extra}]")
    origin: dict[str, Any] = json.loads(noted)
    address = urlsplit(origin["url"])
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return _install(f"nmpsim[{extra}] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}")
    if address.scheme != "file":
        return _install(f"nmpsim[{extra}] @ {origin['url']}")
    is_editable = origin.get("dir_info", {}).get("editable", False)
    from urllib.request import url2pathname

    path = url2pathname(address.path)
    return _install(f"{path}[{extra}]", *(["-e"] if is_editable else []))


def _install(what: str, *options: str) -> str:
    return shlex.join(["pip", "install", *options, what])
