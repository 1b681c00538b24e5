"""Compiled functions in a folder of ours: what Numba's own cache does, but checked.

Numba's cache believes every file that it finds, and has one folder for all of a process.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from nmpsim.kernels.cache_folder import CacheFolder, entry_name

_NEEDED = (
    CFunc.compile,
    CompileResult._rebuild,
    CompileResult._reduce,
    CompileResult.codegen,
    Dispatcher.enable_caching,
    JITCPUCodegen.magic_tuple,
    JITCodeLibrary.has_dynamic_globals,
)


class _Kept:
    """What Numba asks for a function's code before it compiles it, and gives it to afterwards."""

    def __init__(self, folder: CacheFolder, function: Callable[..., Any]) -> None:
        self._folder = folder
        self._beginning = entry_name(function)
        self.cache_path = str(folder.path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The code for a signature; None if it is not kept."""
        context.refresh()
        kept = self._folder.read(self._name(signature, context.codegen()))
        if kept is None:
            return None
        return CompileResult._rebuild(context, *pickle.loads(kept))

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep the code for a signature, unless it holds addresses of this process."""
        if not compiled.library.has_dynamic_globals:
            name = self._name(signature, compiled.codegen)
            self._folder.write(name, dumps(compiled._reduce()))

    def _name(self, signature: Any, codegen: Any) -> str:
        made_for = f"{signature} {codegen.magic_tuple()}"
        return f"{self._beginning}{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.kernel"


def keep(folder: CacheFolder | None, compiled: Any, function: Callable[..., Any]) -> Any:
    """Let what Numba makes of a function be kept."""
    if folder is not None and not numba.config.DISABLE_JIT:
        compiled._cache = _Kept(folder, function)
    return compiled


def compile_cfunc(folder: CacheFolder | None, signature: Any, function: Any) -> Any:
    """As ``numba.cfunc``, and kept."""
    types = signature.args, signature.return_type
    callback = CFunc(function, types, locals={}, options={"error_model": "numpy"})
    keep(folder, callback, function).compile()
    return callback
