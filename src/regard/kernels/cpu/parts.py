"""Functions that kernels are made of: compiled to LLVM's intermediate form only, for the kernels that take them in.

Numba makes machine code of every function that another one calls, and optimizes it together with all that it calls in
turn. Nobody calls a part of a kernel but that kernel, so its parts are put together unoptimized, and optimized once.
"""

from functools import partial
from typing import Any

import numba
from llvmlite.binding import Linkage
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.runtime import rtsys
from numba.core.typed_passes import IRLegalization
from numba.extending import overload

ARITHMETIC = {"contract", "arcp", "reassoc", "nsz", "afn"}
"""Liberties with arithmetic that keep NaN and infinities what they are."""


class PartLibrary(JITCodeLibrary):
    """The intermediate form of one function; that of the functions which it calls is in other libraries."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: it is for messages of errors, which no kernel raises."""

    def _get_module_for_linking(self) -> Any:
        module = self._final_module.clone()
        link_called(self, module)
        return module


class KernelLibrary(JITCodeLibrary):
    """A kernel with all its parts, as machine code."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        link_called(self, self._final_module)
        self._linking_libraries = []
        super().finalize()


def link_called(library: CPUCodeLibrary, module: Any) -> None:
    """Take all that a library needs into a module: its parts once each, and behind them Numba's own functions.

    Of a library of Numba's only those functions are taken that the module asks for already.
    """
    own = {function.name for function in module.functions if not function.is_declaration}
    parts: dict[CPUCodeLibrary, None] = {}
    others: dict[CPUCodeLibrary, None] = {}
    waiting = list(library._linking_libraries)
    while waiting:
        one = waiting.pop()
        library._reload_init.update(one._reload_init)
        if not isinstance(one, PartLibrary):
            others[one] = None
        elif one not in parts:
            parts[one] = None
            module.link_in(one._final_module, preserve=True)
            waiting.extend(one._linking_libraries)
    for function in module.functions:
        if not function.is_declaration and function.linkage == Linkage.external and function.name not in own:
            function.linkage = "linkonce_odr"
    others.pop(rtsys.library, None)
    for one in (*others, rtsys.library):
        module.link_in(one._get_module_for_linking(), preserve=True)


@register_pass(mutates_CFG=False, analysis_only=True)
class _ForAPart(AnalysisPass):
    _name = "library_of_a_part"

    def __init__(self):
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _ForAKernel(AnalysisPass):
    _name = "library_of_a_kernel"

    def __init__(self):
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


class PartCompiler(CompilerBase):
    """Numba's compiler, for a part."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_ForAPart, IRLegalization)
        passes.finalize()
        return [passes]


class KernelCompiler(CompilerBase):
    """Numba's compiler, for a kernel."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_ForAKernel, IRLegalization)
        passes.finalize()
        return [passes]


OF_A_PART = {
    "error_model": "numpy",
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}

chosen_for = partial(overload, jit_options=OF_A_PART, strict=False)
"""Decorates what chooses, by the types of its arguments, the part that stands for a function."""

inlined = numba.njit(fastmath=ARITHMETIC, **OF_A_PART)
"""A part of kernels: sums may be taken in another order, products contracted with sums."""

embedded = numba.njit(fastmath=ARITHMETIC, forceinline=True, **OF_A_PART)
"""A part of kernels that stands in each of its callers, since a call would cost as much as what it does."""

exact = numba.njit(fastmath={"contract"}, **OF_A_PART)
"""A part of kernels whose order of operations matters."""
