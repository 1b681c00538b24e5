"""Functions that only compiled code calls: parts of a function that Python calls.

Numba optimizes each function with all that it calls, and makes machine code of it; so what stands
at the bottom goes through LLVM again for each level of calls. A part stays as it was lowered until
a whole is made of it, which goes through LLVM once.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import codegen, compiler, compiler_machinery, typed_passes

_numba: Any = numba  # its types, where it ships any, do not know all that is used here
_dynfunc_any: Any = _dynfunc
_codegen: Any = codegen
_compiler: Any = compiler
_machinery: Any = compiler_machinery
_passes: Any = typed_passes


class _PartLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """LLVM code that waits to be linked into a whole."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_passes.NativeLowering):  # type: ignore[misc]  # Numba has no types
    """As Numba's own, but without machine code at the end."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        state.library = library
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name = lowered.fndesc.qualname
        module = lowered.fndesc.lookup_module()
        # Callers know a function by this object; nobody calls it.
        entry = _dynfunc_any.make_function(module, name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(entry, lowered.fndesc, [library])
        state.reload_init.extend(library._reload_init)
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class PartCompiler(_compiler.CompilerBase):  # type: ignore[misc]  # Numba has no types
    """Numba's compiler for parts."""

    def define_pipelines(self) -> list[Any]:
        """The usual passes, with the lowering of parts."""
        usual = _compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager = _machinery.PassManager("part")
        for kind, description in usual.passes:
            is_lowering = kind is _passes.NativeLowering
            manager.add_pass(_PartLowering if is_lowering else kind, description)
        manager.finalize()
        return [manager]
