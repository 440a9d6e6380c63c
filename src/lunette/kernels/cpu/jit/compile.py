"""Turns a kernel, with all that it calls, into one piece of machine code: optimised and emitted once.

Numba compiles every function that a kernel calls as if it were to be run by itself: optimised,
emitted, then optimised again in each of its callers. Here such a function is typed, lowered, put
into fewer instructions and linked into its callers; only the whole is inlined, optimised and
emitted. Fewer of Numba's passes run over each function too, without events, timings or checks of
one pass by the next: the kernels have no closures, no `with`, no exceptions, no arrays and nothing
whose references are counted, so no variable has to be let go.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import codegen, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.runtime import rtsys
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction

from lunette.kernels.cpu.jit.cache import ENTRY, PARAMETERS

__all__ = ["OPTIONS", "UNWRAPPED", "Parts", "machine_code"]

OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}
SYSTEM = {"memset_pattern16"}
"""What LLVM makes of a loop that fills memory on macOS: a function of its libSystem."""
UNWRAPPED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class _Nowhere:
    """Stands for the engine of code that is not run where it is compiled."""

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: kernels raise nothing and hold no Python objects, so they need no environment."""


class _Part(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of one function and of all it calls, linked and no more."""

    codegen = _Nowhere()

    def _optimize_functions(self, module: Any) -> None:
        """Variables into registers, and fewer instructions: less to link, and to weigh for inlining."""
        module.data_layout = self._codegen._data_layout
        builder, passes = self._codegen._pass_builder(), llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: there is no machine code yet."""
        self._ensure_finalized()
        return 0

    def emit(self, name: str) -> bytes:
        """Optimise the whole and emit it, with the function `name` behind the entry."""
        module = self._final_module
        module.link_in(llvm.parse_assembly(_entry(name)))
        module.get_function(name).linkage = llvm.Linkage.internal
        super()._optimize_final_module()
        declared = [f.name for f in module.functions if f.is_declaration]
        missing = [name for name in declared if name[:5] != "llvm." and name not in SYSTEM]
        if missing:
            raise RuntimeError(f"a kernel must be complete in itself, but calls {missing}")
        return bytes(self._codegen._tm.emit_object(module))


def _entry(name: str) -> str:
    """A plain C function around one of Numba's, which takes the places of a result and an error too."""
    kinds = ", ".join(["i64"] * PARAMETERS)
    values = ", ".join(f"i64 %{i}" for i in range(PARAMETERS))
    return f"""
        declare i32 @"{name}"(ptr, ptr, {kinds})
        define i32 @{ENTRY}({kinds}) {{
            %result = alloca ptr
            %error = alloca ptr
            %status = call i32 @"{name}"(ptr %result, ptr %error, {values})
            ret i32 %status
        }}
    """


class _Steps(PassManager):  # type: ignore[misc]
    """The passes, one after the other."""

    def run(self, state: Any) -> None:
        """All of them. `DeadBranchPrune` asks for an analysis of its own, which it does not use."""
        for step in PASSES:
            made = step()
            made.analysis = {step: None}
            made.run_pass(state)


class Parts(CompilerBase):  # type: ignore[misc]
    """Numba's compiler for a function that ends up within a kernel."""

    def define_pipelines(self) -> list[Any]:
        """The passes, and a library that is not yet machine code."""
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return [_Steps("kernel")]


def machine_code(function: Callable[..., Any]) -> bytes:
    """The object code of a kernel, a Python function of eight integers."""
    with global_compiler_lock, _without_collection(), _in_haste():
        dispatcher = numba.njit(pipeline_class=Parts, **OPTIONS, **UNWRAPPED)(function)
        dispatcher.compile(types.void(*[types.int64] * PARAMETERS))
        (result,) = dispatcher.overloads.values()
        return result.library.emit(result.fndesc.llvm_func_name)  # type: ignore[no-any-return]


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection: a compiler makes many objects and no garbage worth the search."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _in_haste() -> Iterator[None]:
    """What Numba does again and again is done once, and what kernels do not need, not at all.

    An operator on the same types is resolved once: Numba would try all its templates every time. A
    type is measured once: LLVM would parse a module for it. Where each variable lives and dies is not
    worked out after every pass. Of what Numba knows of Python and NumPy, the kernels need numbers,
    ranges and tuples; whoever compiles next loads the rest.
    """
    signatures: dict[Any, Any] = {}
    sizes: dict[str, int] = {}
    resolve, measure = BaseFunction.get_call_type, ir.Type.get_abi_size

    def resolve_once(self: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        if keywords:
            return resolve(self, context, arguments, keywords)
        key = id(self), arguments
        if key not in signatures:
            signatures[key] = self, resolve(self, context, arguments, keywords)
        return signatures[key][1]

    def measure_once(self: Any, target: Any, context: Any = None) -> int:
        key = str(self)
        if key not in sizes:
            sizes[key] = measure(self, target, context)
        return sizes[key]

    def process_blocks(self: Any, *_: Any, **__: Any) -> None:
        self.func_ir.blocks = canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    with (
        _instead(BaseFunction, "get_call_type", resolve_once),
        _instead(ir.Type, "get_abi_size", measure_once),
        _instead(PostProcessor, "run", process_blocks),
        _instead(CPUContext, "load_additional_registries", _load_a_few),
    ):
        yield


def _load_a_few(context: Any) -> None:
    """Teach a context what kernels are made of. Loading these modules tells Numba of them.

    Numba may have put our own intrinsics into any of the registries that the context has.
    """
    from numba.cpython import builtins, mathimpl, numbers, rangeobj, tupleobj  # noqa: F401

    rtsys.initialize(context)
    for registry in {mathimpl.registry: None, **context._registries}:
        context.install_registry(registry)


@contextmanager
def _instead(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give an attribute another value for a while."""
    before = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, before)
