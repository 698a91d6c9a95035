"""Eight float64 numbers at a time, for kernels whose loops the compiler does not vectorise well.

A `load`, a product and a sum become one instruction of the processor each, or two where its
registers are shorter: several sums stay in registers while a loop runs, which numba's own loops
do not achieve. Uncompiled, the same code runs on arrays of eight numbers, so that a kernel stays
a plain function. Indices are not checked and not negative; the numbers past the end of a row
that eight at a time may touch belong to the caller.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

LANES = 8
_NUMBER, _PLACE = ir.DoubleType(), ir.IntType(32)
_REGISTER = ir.VectorType(_NUMBER, LANES)


# ---------------------------------------------------------------------- as plain functions
def load(a, *index):
    """a[..., j : j + 8] of an array in C order."""
    return a[(*index[:-1], slice(index[-1], index[-1] + LANES))].astype(np.float64)


def store(a, *rest):
    """a[..., j : j + 8] = x, where x is the last argument."""
    a[(*rest[:-2], slice(rest[-2], rest[-2] + LANES))] = rest[-1]


def same(a, *index):
    """Eight times a[index]."""
    return np.full(LANES, a[index])


def splat(x):
    """Eight times the number x."""
    return np.full(LANES, float(x))


def total(x):
    """Sum of the eight."""
    for half in (4, 2, 1):
        x = x + np.roll(x, half)
    return float(x[0])


def root(x):
    """Square roots."""
    return np.sqrt(x)


def greater(x, y):
    """The greater of each pair; y where x is NaN."""
    return np.where(x > y, x, y)


# ------------------------------------------------------------------------------- compiled
class _Vector(types.Type):
    def __init__(self):
        super().__init__(name="skpmtl.eight")

_vector = _Vector()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _REGISTER)


def _typed(function, result):
    """Let numba know what `function` returns: `result` of the types of its arguments, or None."""

    @infer_global(function)
    class _Template(AbstractTemplate):
        def generic(self, args, kws):
            return result(args)


def _element(args, rest):
    """Signature of an access to an array in C order with one index for each of its axes."""
    if not args or not isinstance(args[0], types.Array) or args[0].layout != "C":
        return None  # eight numbers in a row must lie side by side
    if args[0].ndim == len(args) - 1 - len(rest):
        return (args[0], *[types.intp] * args[0].ndim, *rest)
    return None


def _reads(args):
    known = _element(args, ())
    return known and signature(_vector, *known)


def _writes(args):
    known = _element(args, (_vector,))
    return known and signature(types.void, *known)


def _arithmetic(args):
    if len(args) == 2 and _vector in args and set(args) <= {_vector, types.float64}:
        return signature(_vector, *args)
    return None

_typed(load, _reads)
_typed(same, _reads)
_typed(store, _writes)
_typed(splat, lambda args: signature(_vector, types.float64))
_typed(total, lambda args: signature(types.float64, _vector))
_typed(root, lambda args: signature(_vector, _vector))
_typed(greater, lambda args: signature(_vector, _vector, _vector))


def _address(context, builder, kind, array, index):
    # Straight from the fields: a proxy of the array is a dozen instructions more for every access,
    # which the compiler has to read and to remove.
    def field(name):
        at = context.data_model_manager[kind].get_field_position(name)
        return builder.extract_value(array, at)

    place, strides = field("data"), field("strides")
    for axis, i in enumerate(index[:-1]):
        jump = builder.mul(builder.extract_value(strides, axis), i)
        place = cgutils.pointer_add(builder, place, jump, place.type)
    return builder.gep(place, [index[-1]])


def _shuffled(builder, x, places):
    nothing = ir.Constant(_REGISTER, ir.Undefined)
    return builder.shuffle_vector(x, nothing, ir.Constant(ir.VectorType(_PLACE, LANES), places))


def _repeated(builder, x):
    first = builder.insert_element(ir.Constant(_REGISTER, ir.Undefined), x, _PLACE(0))
    return _shuffled(builder, first, [0] * LANES)


@lower_builtin(load, types.Array, types.VarArg(types.Any))
def _load(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:])
    kind = ir.VectorType(builder.load(place).type, LANES)
    x = builder.load(builder.bitcast(place, kind.as_pointer()), align=4)
    return builder.fpext(x, _REGISTER) if kind != _REGISTER else x


@lower_builtin(same, types.Array, types.VarArg(types.Any))
def _same(context, builder, sig, args):
    x = builder.load(_address(context, builder, sig.args[0], args[0], args[1:]))
    return _repeated(builder, builder.fpext(x, _NUMBER) if x.type != _NUMBER else x)


@lower_builtin(store, types.Array, types.VarArg(types.Any))
def _store(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:-1])
    builder.store(args[-1], builder.bitcast(place, _REGISTER.as_pointer()), align=8)
    return context.get_dummy_value()


@lower_builtin(splat, types.float64)
def _splat(context, builder, sig, args):
    return _repeated(builder, args[0])


@lower_builtin(total, _Vector)
def _total(context, builder, sig, args):
    x = args[0]
    for half in (4, 2, 1):
        x = builder.fadd(x, _shuffled(builder, x, [(i - half) % LANES for i in range(LANES)]))
    return builder.extract_element(x, _PLACE(0))


@lower_builtin(root, _Vector)
def _root(context, builder, sig, args):
    kind = ir.FunctionType(_REGISTER, [_REGISTER])
    name = f"llvm.sqrt.v{LANES}f64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@lower_builtin(greater, _Vector, _Vector)
def _greater(context, builder, sig, args):
    return builder.select(builder.fcmp_ordered(">", *args), *args)


def _operation(operation, instruction):
    _typed(operation, _arithmetic)

    def lowered(context, builder, sig, args):
        x, y = (
            arg if kind == _vector else _repeated(builder, arg)
            for arg, kind in zip(args, sig.args, strict=True)
        )
        # A product may be joined to the sum that takes it, on processors that can.
        return getattr(builder, instruction)(x, y, flags=("contract",))

    for pair in ((_Vector, _Vector), (_Vector, types.float64), (types.float64, _Vector)):
        lower_builtin(operation, *pair)(lowered)

_operation(operator.add, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")
_operation(operator.truediv, "fdiv")
