"""Errors for missing packages, with the command that installs them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmpsim.diagnostics import Place, UserError, fail


@contextmanager
def require_extra(
    extra: str, message: str, *, place: Place | Path | None = None, instead: str | None = None
) -> Iterator[None]:
    """Convert ImportError in the ``with`` block to UserError (PKG001) with an install command.

    Parameters
    ----------
    extra
        Name of the extra in nmpsim's package metadata.
    message
        Feature that needs the package.
    place
        File that needs it.
    instead
        Instruction for the user who does without the package.
    """
    try:
        yield
    except ImportError as error:
        hint = f"Run `{get_install_command(extra)}`"
        raise fail(
            "PKG001",
            message,
            place=place,
            found=f"{error.name} is not installed" if error.name else str(error),
            hint=f"{hint}." if instead is None else f"{hint}, or {instead}.",
        ) from error


def make_missing_package_error(package: str) -> UserError:
    """Return the error (PKG001) for a missing package that nmpsim always requires."""
    return fail(
        "PKG001",
        "a required package is missing",
        found=f"{package} is not installed",
        expected=f"the package {package}",
        hint=_install(package),
    )


def get_install_command(extra: str) -> str:
    """Return the command that installs an extra from the source of this installation.

    pip records a folder, wheel or repository in ``direct_url.json`` (PEP 610); without it the
    package came from an index. A bare name could be another project's package on an index.
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
