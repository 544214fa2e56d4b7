"""Parts: the functions that kernels consist of, compiled to LLVM's intermediate representation only.

For every function that another one calls, Numba makes machine code, optimized together with all its callees. Only
kernels call parts, so parts are linked into a kernel unoptimized, and optimized once.
"""

from functools import cache, partial
from typing import Any

import numba
from llvmlite import ir
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import InlineOverloads, IRLegalization, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes, InlineInlinables, WithLifting
from numba.extending import overload

ARITHMETIC = {"contract", "arcp", "reassoc", "nsz", "afn"}
"""Relaxations of arithmetic that preserve NaN and infinities."""


_UNUSED_PASSES = (WithLifting, InlineClosureLikes, InlineInlinables, InlineOverloads, NopythonRewrites)
"""Passes for what parts do not contain: contexts, closures, functions inlined before types are known, and expressions
of whole arrays."""


class PartLibrary(JITCodeLibrary):
    """One function in LLVM's intermediate representation; the functions that it calls are in other libraries."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Returns 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Does nothing: Numba needs the environment for error messages, and no kernel raises errors."""

    def _get_module_for_linking(self) -> Any:
        raise RuntimeError(f"only kernels can call {self.name!r}, which is a part of kernels")


class KernelLibrary(JITCodeLibrary):
    """A kernel and all its parts, as machine code."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        self._link_parts()
        super().finalize()

    def _link_parts(self) -> None:
        """Links all parts, each once, and after them the functions of Numba's libraries that they and the kernel call.

        The order matters: of Numba's libraries, LLVM links only functions that are called already.
        """
        module = self._final_module
        kernel_functions = {function.name for function in module.functions if not function.is_declaration}
        linked: set[CPUCodeLibrary] = set()
        waiting, numba_libraries = self._linking_libraries, []
        while waiting:
            library = waiting.pop()
            if library in linked:
                continue
            linked.add(library)
            if isinstance(library, PartLibrary):
                module.link_in(library._final_module, preserve=True)
                waiting.extend(library._linking_libraries)
            else:
                numba_libraries.append(library)
        for function in module.functions:
            if not function.is_declaration and function.name not in kernel_functions:
                # A function that is inlined everywhere can be removed.
                function.linkage = "linkonce_odr"
        self._linking_libraries = numba_libraries


class _WideCodegen(JITCPUCodegen):
    """Numba's code generator with 512-bit vectors where the processor has them.

    For Intel's processors, the compiler prefers 256-bit vectors, so that occasional wide vectors do not lower the clock
    frequency. Kernels only compute: on Ice Lake, they take 0.8 to 1 of the time with wide vectors. Earlier processors
    (without VBMI2) slow down more, and keep the compiler's choice.
    """

    def _customize_tm_features(self) -> str:
        features = super()._customize_tm_features()
        return f"{features},-prefer-256-bit" if "+avx512vbmi2" in features else features


@cache
def _wide_codegen() -> _WideCodegen:
    return _WideCodegen("regard")


def has_feature(name: str) -> bool:
    """Whether the target processor has a feature, by LLVM's name; False if LLVM does not know."""
    return f"+{name}" in _wide_codegen()._tm_features.split(",")


def _add_entry(context: Any, library: CPUCodeLibrary, description: Any, _environment: Any, _helper: Any) -> None:
    """Adds the C function that calls a kernel. Numba's own would check for errors, and need their environment."""
    module = context.create_module("entry")
    convention = context.call_conv
    function_type = convention.get_function_type(description.restype, description.argtypes)
    kernel = ir.Function(module, function_type, description.llvm_func_name)
    argument_types = [context.get_value_type(argument) for argument in description.argtypes]
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), argument_types), description.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    convention.call_function(builder, kernel, description.restype, description.argtypes, entry.args)
    builder.ret_void()
    library.add_ir_module(module)


def _compiler(library_class: type[CPUCodeLibrary]) -> type[CompilerBase]:
    """Returns Numba's compiler with this class of libraries for its code."""

    @register_pass(mutates_CFG=False, analysis_only=True)
    class MakeLibrary(AnalysisPass):
        _name = f"make_{library_class.__name__}"

        def __init__(self):
            super().__init__()

        def run_pass(self, state: Any) -> Any:
            state.library = library_class(_wide_codegen(), state.func_id.func_qualname)
            # Without this, the machine code cannot be stored.
            state.library.enable_object_caching()
            # Types are known now. Arrays own no memory, so there are no references to count.
            state.targetctx.enable_nrt = False
            state.targetctx.create_cfunc_wrapper = partial(_add_entry, state.targetctx)
            return False

    class Compiler(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(MakeLibrary, IRLegalization)
            passes.passes = [entry for entry in passes.passes if entry[0] not in _UNUSED_PASSES]
            passes.finalize()
            return [passes]

    return Compiler


KernelCompiler = _compiler(KernelLibrary)

PART_OPTIONS: Any = {
    "error_model": "numpy",
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _compiler(PartLibrary),
}

chosen_for = partial(overload, jit_options=PART_OPTIONS, strict=False)
"""Decorates a function that chooses a part by the types of its arguments."""

inlined = numba.njit(fastmath=ARITHMETIC, **PART_OPTIONS)
"""Decorates a part: sums may be reordered, and products contracted with sums."""

embedded = numba.njit(fastmath=ARITHMETIC, forceinline=True, **PART_OPTIONS)
"""Decorates a part that is always inlined, since a call would cost as much as its work."""

exact = numba.njit(fastmath={"contract"}, **PART_OPTIONS)
"""Decorates a part whose order of operations matters."""
