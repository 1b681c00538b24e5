"""Modules of this package that are imported on the first call of one of their functions.

A program uses few of the host's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


class LazyModule:
    """Stand-in for a module; its attributes are functions that import the module when called."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        @cache
        def function() -> Callable[..., Any]:
            found: Callable[..., Any] = getattr(
                import_module(f"{__package__}.{self._module}"), name
            )
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            return function()(*arguments, **options)

        return call
