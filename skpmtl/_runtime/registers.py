"""Eight float64 numbers at a time, for kernels whose loops the compiler does not vectorise well.

A `load`, a product and a sum become one instruction of the processor each, or two where its
registers are shorter: several sums stay in registers while a loop runs, which numba's own loops do
not achieve. Uncompiled, the same code runs on arrays of so many numbers, so that a kernel stays a
plain function. Indices are not checked and not negative; the numbers past the end of a row that
eight at a time may touch belong to the caller.
"""

import inspect
import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, models, register_model, type_callable

LANES = 8
_NUMBER, _PLACE, _BYTE = ir.DoubleType(), ir.IntType(32), ir.IntType(8)
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

    @type_callable(function)
    def of_context(context):
        def of_types(a, b=None, c=None, d=None, e=None, f=None):
            return result(tuple(kind for kind in (a, b, c, d, e, f) if kind is not None))

        return of_types


def _element(args, rest):
    """Signature of an access to an array in C order with one index for each of its axes."""
    if not args or not isinstance(args[0], types.Array) or args[0].layout != "C":
        return None  # eight numbers in a row must lie side by side
    if args[0].ndim == len(args) - 1 - len(rest):
        return (args[0], *[types.intp] * args[0].ndim, *rest)
    return None


def _reads(result):
    def typed(args):
        known = _element(args, ())
        return known and result(*known)

    return typed


def _writes(kind):
    def typed(args):
        known = _element(args, (kind,))
        return known and types.void(*known)

    return typed


def _arithmetic(args):
    if len(args) == 2 and _vector in args and set(args) <= {_vector, types.float64}:
        return _vector(*args)
    return None


_typed(load, _reads(_vector))
_typed(same, _reads(_vector))
_typed(store, _writes(_vector))
_typed(splat, lambda args: _vector(types.float64))
_typed(total, lambda args: types.float64(_vector))


# Newer pointers of llvmlite do not know what they point to, and older functions do not ask for it.
_ASKED = "typ" in inspect.signature(ir.IRBuilder.load).parameters  # since 0.44


def step(builder, place, kind, index):
    """The address of entry `index` from `place` on, where numbers of a kind lie."""
    return builder.gep(place, [index], **({"source_etype": kind} if _ASKED else {}))


def fetch(builder, place, kind, **options):
    place = builder.bitcast(place, kind.as_pointer())
    return builder.load(place, **options, **({"typ": kind} if _ASKED else {}))


def _number(context, kind):
    """What llvmlite calls the entries of an array."""
    return context.get_data_type(kind.dtype)


def _address(context, builder, kind, array, index):
    """Of an entry."""

    # Straight from the fields: a proxy of the array is a dozen instructions more for every access,
    # which the compiler has to read and to remove.
    def field(name):
        at = context.data_model_manager[kind].get_field_position(name)
        return builder.extract_value(array, at)

    place, strides = builder.bitcast(field("data"), _BYTE.as_pointer()), field("strides")
    for axis, i in enumerate(index[:-1]):
        jump = builder.mul(builder.extract_value(strides, axis), i)
        place = step(builder, place, _BYTE, jump)
    number = _number(context, kind)
    return step(builder, builder.bitcast(place, number.as_pointer()), number, index[-1])


def _shuffled(builder, x, places):
    nothing = ir.Constant(_REGISTER, ir.Undefined)
    return builder.shuffle_vector(x, nothing, ir.Constant(ir.VectorType(_PLACE, LANES), places))


def _repeated(builder, x):
    first = builder.insert_element(ir.Constant(_REGISTER, ir.Undefined), x, _PLACE(0))
    return _shuffled(builder, first, [0] * LANES)


def _read(builder, place, number):
    x = fetch(builder, place, ir.VectorType(number, LANES), align=4)
    return builder.fpext(x, _REGISTER) if number != _NUMBER else x


def _write(builder, place, x):
    builder.store(x, builder.bitcast(place, _REGISTER.as_pointer()), align=8)


@lower_builtin(load, types.Array, types.VarArg(types.Any))
def _load(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:])
    return _read(builder, place, _number(context, sig.args[0]))


@lower_builtin(same, types.Array, types.VarArg(types.Any))
def _same(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:])
    x = fetch(builder, place, _number(context, sig.args[0]))
    return _repeated(builder, builder.fpext(x, _NUMBER) if x.type != _NUMBER else x)


@lower_builtin(store, types.Array, types.VarArg(types.Any))
def _store(context, builder, sig, args):
    _write(builder, _address(context, builder, sig.args[0], args[0], args[1:-1]), args[-1])
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


def _operation(operation, instruction):
    _typed(operation, _arithmetic)

    def lowered(context, builder, sig, args):
        args = [
            _repeated(builder, arg) if kind == types.float64 else arg
            for arg, kind in zip(args, sig.args, strict=True)
        ]
        # A product may be joined to the sum that takes it, on processors that can.
        return getattr(builder, instruction)(*args, flags=("contract",))

    for pair in ((_Vector, _Vector), (_Vector, types.float64), (types.float64, _Vector)):
        lower_builtin(operation, *pair)(lowered)


_operation(operator.add, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")
_operation(operator.truediv, "fdiv")
