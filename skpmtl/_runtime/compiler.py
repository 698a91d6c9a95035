"""numba's compiler without what kernels have no use for, which is a quarter of its time.

- Passes over closures, array expressions and lists of types are left out.
- LLVM optimises a kernel once, as a whole, and not also function by function before that.
- ``range`` is a counter and its end. numba's own divides for the number of steps, and tests for
  steps of zero. Steps of kernels are positive, or negative numbers that stand in the code.
"""

from llvmlite import ir as llvm
from numba import types
from numba.core import cgutils, ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.imputils import RefType, iternext_impl
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.core.untyped_passes import FixupArgs
from numba.extending import lower_builtin, models, register_model

_LEFT_OUT = {
    "WithLifting", "InlineClosureLikes", "RewriteSemanticConstants", "RewriteDynamicRaises",
    "MakeFunctionToJitFunction", "InlineInlinables", "InlineOverloads", "FindLiterallyCalls",
    "LiteralUnroll", "LiteralPropagationSubPipelinePass", "NopythonRewrites",
    "NoPythonSupportedFeatureValidation", "DumpParforDiagnostics",
}  # fmt: skip


class KernelCompiler(CompilerBase):
    """The `pipeline_class` of kernels."""

    def define_pipelines(self):
        passes = PassManager("kernel")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step.__name__ not in _LEFT_OUT:
                passes.add_pass(step, description)
        passes.add_pass_after(_Prepare, FixupArgs)
        passes.finalize()
        return [passes]


@register_pass(mutates_CFG=False, analysis_only=False)
class _Prepare(FunctionPass):
    _name = "prepare_kernel"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value = assignment.value
                if isinstance(value, ir.Global) and value.value is range:
                    assignment.value = ir.Global(_range.__name__, _range, value.loc)
        codegen = state.targetctx.codegen()
        state.library = _library_of(codegen.create_library("").__class__)(
            codegen, state.func_id.func_qualname
        )
        state.library.enable_object_caching()
        return True


_libraries = {}


def _library_of(base):
    """A class of code libraries whose functions are not optimised before they are one module."""
    if base not in _libraries:

        def enter(self, module):
            module.data_layout = self._codegen._data_layout

        _libraries[base] = type("KernelLibrary", (base,), {"_optimize_functions": enter})
    return _libraries[base]


# ---------------------------------------------------------------------------------- range
def _range(*bounds):
    return range(*bounds)


class _Counter(types.SimpleIteratorType):
    def __init__(self, down):
        self.down = down
        super().__init__(f"skpmtl.counter(down={down})", types.intp)


class _Range(types.SimpleIterableType):
    def __init__(self, down):
        super().__init__(f"skpmtl.range(down={down})", _Counter(down))


_PARTS = [("at", types.intp), ("stop", types.intp), ("step", types.intp)]


@register_model(_Range)
class _RangeModel(models.StructModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _PARTS)


@register_model(_Counter)
class _CounterModel(models.StructModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("at", types.CPointer(types.intp)), *_PARTS[1:]])


@infer_global(_range)
class _RangeTemplate(AbstractTemplate):
    prefer_literal = True

    def generic(self, args, kws):
        down = len(args) == 3 and getattr(args[2], "literal_value", 1) < 0
        return signature(_Range(down), *[types.intp] * len(args))


def _struct(context, builder, kind, *parts):
    value = llvm.Constant(context.get_value_type(kind), llvm.Undefined)
    for place, part in enumerate(parts):
        value = builder.insert_value(value, part, place)
    return value


@lower_builtin(_range, types.intp)
@lower_builtin(_range, types.intp, types.intp)
@lower_builtin(_range, types.intp, types.intp, types.intp)
def _make(context, builder, sig, args):
    zero, one = (context.get_constant(types.intp, number) for number in (0, 1))
    start, stop, step = (*([zero, *args] if len(args) == 1 else args), one)[:3]
    return _struct(context, builder, sig.return_type, start, stop, step)


@lower_builtin("getiter", _Range)
def _begin(context, builder, sig, args):
    start, stop, step = (builder.extract_value(args[0], place) for place in range(3))
    at = cgutils.alloca_once_value(builder, start)
    return _struct(context, builder, sig.return_type, at, stop, step)


@lower_builtin("iternext", _Counter)
@iternext_impl(RefType.UNTRACKED)
def _next(context, builder, sig, args, result):
    at, stop, step = (builder.extract_value(args[0], place) for place in range(3))
    number = builder.load(at)
    result.set_valid(builder.icmp_signed(">" if sig.args[0].down else "<", number, stop))
    result.yield_(number)
    # No number of a kernel comes near the largest one: overflow need not be thought of.
    builder.store(builder.add(number, step, flags=("nsw",)), at)
