"""Functions that kernels are made of: compiled to LLVM's intermediate form only, for the kernels that take them in.

Numba makes machine code of every function that another one calls, and optimizes it together with all that it calls in
turn. Only kernels call their parts, so these are put together unoptimized, and optimized once.
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
"""Liberties with arithmetic that keep NaN and infinities what they are."""


_FOR_OTHER_CODE = (WithLifting, InlineClosureLikes, InlineInlinables, InlineOverloads, NopythonRewrites)
"""Passes for what parts do not have: contexts, closures, functions that are put in before types are known, and
expressions of whole arrays."""


class PartLibrary(JITCodeLibrary):
    """One function in LLVM's intermediate form; the functions that it calls are in other libraries."""

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
        """Nothing: Numba needs it for the messages of errors, which no kernel raises."""

    def _get_module_for_linking(self) -> Any:
        raise RuntimeError(f"only kernels can call {self.name!r}, which is a part of kernels")


class KernelLibrary(JITCodeLibrary):
    """A kernel with all its parts, as machine code."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        self._link_parts()
        super().finalize()

    def _link_parts(self) -> None:
        """Take in all parts, each once; what they and the kernel need of Numba's libraries is linked behind them.

        The order counts: of a library of Numba's, LLVM takes only those functions that are called already.
        """
        module = self._final_module
        own = {function.name for function in module.functions if not function.is_declaration}
        seen: set[CPUCodeLibrary] = set()
        waiting, numbas = self._linking_libraries, []
        while waiting:
            library = waiting.pop()
            if library in seen:
                continue
            seen.add(library)
            if isinstance(library, PartLibrary):
                module.link_in(library._final_module, preserve=True)
                waiting.extend(library._linking_libraries)
            else:
                numbas.append(library)
        for function in module.functions:
            if not function.is_declaration and function.name not in own:
                # So that it is removed where it was inlined everywhere.
                function.linkage = "linkonce_odr"
        self._linking_libraries = numbas


class _WideCodegen(JITCPUCodegen):
    """As Numba's own, but for the vectors: of 512 bits where the processor has them.

    For processors of Intel the compiler takes vectors of 256 bits, so that code with a few wide vectors in it does not
    lower their frequency. Kernels do nothing but calculate: on Ice Lake, they take 0.8 to 1 of the time with wide ones.
    Processors before that one (without VBMI2) slow down more, and are left as the compiler has them.
    """

    def _customize_tm_features(self) -> str:
        features = super()._customize_tm_features()
        return f"{features},-prefer-256-bit" if "+avx512vbmi2" in features else features


@cache
def _wide_codegen() -> _WideCodegen:
    return _WideCodegen("regard")


def has_feature(name: str) -> bool:
    """Whether kernels are compiled for processors with a feature, by LLVM's name; no, where LLVM can't tell."""
    return f"+{name}" in _wide_codegen()._tm_features.split(",")


def _add_entry(context: Any, library: CPUCodeLibrary, description: Any, _environment: Any, _helper: Any) -> None:
    """The C function that calls a kernel. Numba's own would look for an error, and need what tells of one."""
    module = context.create_module("entry")
    convention = context.call_conv
    kind = convention.get_function_type(description.restype, description.argtypes)
    kernel = ir.Function(module, kind, description.llvm_func_name)
    taken = [context.get_value_type(argument) for argument in description.argtypes]
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), description.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    convention.call_function(builder, kernel, description.restype, description.argtypes, entry.args)
    builder.ret_void()
    library.add_ir_module(module)


def _compiler(library_class: type[CPUCodeLibrary]) -> type[CompilerBase]:
    """Numba's compiler, whose code goes to a library of a class."""

    @register_pass(mutates_CFG=False, analysis_only=True)
    class MakeLibrary(AnalysisPass):
        _name = f"make_{library_class.__name__}"

        def __init__(self):
            super().__init__()

        def run_pass(self, state: Any) -> Any:
            state.library = library_class(_wide_codegen(), state.func_id.func_qualname)
            # Else the machine code could not be stored.
            state.library.enable_object_caching()
            # Types are known now. Arrays own no memory, so that there are no references to count.
            state.targetctx.enable_nrt = False
            state.targetctx.create_cfunc_wrapper = partial(_add_entry, state.targetctx)
            return False

    class Compiler(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(MakeLibrary, IRLegalization)
            passes.passes = [entry for entry in passes.passes if entry[0] not in _FOR_OTHER_CODE]
            passes.finalize()
            return [passes]

    return Compiler


KernelCompiler = _compiler(KernelLibrary)

OF_A_PART: Any = {
    "error_model": "numpy",
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _compiler(PartLibrary),
}

chosen_for = partial(overload, jit_options=OF_A_PART, strict=False)
"""Decorates what chooses, by the types of its arguments, the part that stands for a function."""

inlined = numba.njit(fastmath=ARITHMETIC, **OF_A_PART)
"""A part of kernels: sums may be taken in another order, products contracted with sums."""

embedded = numba.njit(fastmath=ARITHMETIC, forceinline=True, **OF_A_PART)
"""A part of kernels that stands in each of its callers, since a call would cost as much as what it does."""

exact = numba.njit(fastmath={"contract"}, **OF_A_PART)
"""A part of kernels whose order of operations matters."""
