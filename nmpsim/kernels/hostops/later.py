"""Modules of this package that are imported when one of their functions is called: of all that the
host can do a program uses little."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


class Later:
    """In place of a module; its functions are those that the module has."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        @cache
        def function() -> Callable[..., Any]:
            found: Callable[..., Any] = getattr(
                import_module(f"{__package__}.{self._module}"), name
            )
            return found

        def call(*arguments: Any) -> Any:
            return function()(*arguments)

        return call
