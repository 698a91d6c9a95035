"""Eight float64 numbers at a time, for kernels whose loops the compiler does not vectorise well.

A `load`, a product and a sum become one instruction of the processor each, or two where its
registers are shorter: several sums stay in registers while a loop runs, which numba's own loops do
not achieve. The 16 numbers of a row are one value, too, with choices, roots, exponentials and
logarithms: kernels over tasks side by side, which would have a loop for every statement, are
compiled in a fraction of the time. Uncompiled, the same code runs on arrays of so many numbers, so
that a kernel stays a plain function. Indices are not checked and not negative; the numbers past the
end of a row that eight at a time may touch belong to the caller.
"""

import inspect
import math
import operator
from itertools import product

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, models, register_model, type_callable

LANES = 8
WIDE = 2 * LANES  # numbers of a row

_NUMBER, _PLACE, _BYTE = ir.DoubleType(), ir.IntType(32), ir.IntType(8)
_REGISTER = ir.VectorType(_NUMBER, LANES)
_WIDE, _BITS = (ir.VectorType(kind, WIDE) for kind in (_NUMBER, ir.IntType(64)))


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


def row(a, *index):
    """a[index], 16 numbers."""
    return np.array(a[index], dtype=np.float64)


def set_row(a, *rest):
    """a[index] = x, where x is the last argument."""
    a[rest[:-1]] = rest[-1]


def dot(a, i, p, j, q, n):
    """Sum of the products of n rows a[i], a[i + p], ... and a[j], a[j + q], ..., 16 numbers."""
    total = np.zeros(WIDE)
    for k in range(n):
        total = total + a[i + k * p] * a[j + k * q]
    return total


def pooled(a, i, heads, b):
    """a[i] <- sums over all with the same one of the 16 in heads[b], which is one of them."""
    for t in range(WIDE):
        if heads[b, t] != t:
            a[i, heads[b, t]] += a[i, t]
    a[i] = a[i, heads[b]]
    return a[i]


def wide(x):
    """16 times the number x."""
    return np.full(WIDE, float(x))


def larger(x, y):
    """The larger ones of the numbers of two rows."""
    return np.maximum(x, y)


def smaller(x, y):
    return np.minimum(x, y)


def chosen(c, x, y):
    """Numbers of x where those of c are above zero, and of y elsewhere."""
    return np.where(c > 0.0, x, y)


def sqrt(x):
    return np.sqrt(x)


def exp(x):
    """exp(x) of x in -700 ... 700 to 12 digits."""
    return np.exp(x)


def log(x):
    """Logarithm of positive normal numbers to 15 digits."""
    return np.log(x)


# ------------------------------------------------------------------------------- compiled
class _Vector(types.Type):
    def __init__(self):
        super().__init__(name="skpmtl.eight")


class _Wide(types.Type):
    def __init__(self):
        super().__init__(name="skpmtl.wide")


_vector, _wide = _Vector(), _Wide()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _REGISTER)


@register_model(_Wide)
class _WideModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _WIDE)


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
    for kind in (_wide, _vector):
        if len(args) == 2 and kind in args and set(args) <= {kind, types.float64}:
            return kind(*args)
    return None


_typed(load, _reads(_vector))
_typed(same, _reads(_vector))
_typed(store, _writes(_vector))
_typed(splat, lambda args: _vector(types.float64))
_typed(total, lambda args: types.float64(_vector))


# Newer pointers of llvmlite do not know what they point to, and older functions do not ask for it.
_ASKED = "typ" in inspect.signature(ir.IRBuilder.load).parameters  # since 0.44


def _step(builder, place, kind, index):
    """The address of entry `index` from `place` on, where numbers of a kind lie."""
    return builder.gep(place, [index], **({"source_etype": kind} if _ASKED else {}))


def _fetch(builder, place, kind, **options):
    place = builder.bitcast(place, kind.as_pointer())
    return builder.load(place, **options, **({"typ": kind} if _ASKED else {}))


def _number(context, kind):
    """What llvmlite calls the entries of an array."""
    return context.get_data_type(kind.dtype)


def _address(context, builder, kind, array, index, number=None):
    """Of an entry, which may be a row of numbers."""

    # Straight from the fields: a proxy of the array is a dozen instructions more for every access,
    # which the compiler has to read and to remove.
    def field(name):
        at = context.data_model_manager[kind].get_field_position(name)
        return builder.extract_value(array, at)

    place, strides = builder.bitcast(field("data"), _BYTE.as_pointer()), field("strides")
    for axis, i in enumerate(index[:-1]):
        jump = builder.mul(builder.extract_value(strides, axis), i)
        place = _step(builder, place, _BYTE, jump)
    number = number or _number(context, kind)
    return _step(builder, builder.bitcast(place, number.as_pointer()), number, index[-1])


def _shuffled(builder, x, places):
    nothing = ir.Constant(_REGISTER, ir.Undefined)
    return builder.shuffle_vector(x, nothing, ir.Constant(ir.VectorType(_PLACE, LANES), places))


def _repeated(builder, x):
    first = builder.insert_element(ir.Constant(_REGISTER, ir.Undefined), x, _PLACE(0))
    return _shuffled(builder, first, [0] * LANES)


def _read(builder, place, number):
    x = _fetch(builder, place, ir.VectorType(number, LANES), align=4)
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
    x = _fetch(builder, place, _number(context, sig.args[0]))
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
        repeated = _all if sig.return_type == _wide else _repeated
        args = [
            repeated(builder, arg) if kind == types.float64 else arg
            for arg, kind in zip(args, sig.args, strict=True)
        ]
        # A product may be joined to the sum that takes it, on processors that can.
        return getattr(builder, instruction)(*args, flags=("contract",))

    for kind in (_Vector, _Wide):
        for pair in ((kind, kind), (kind, types.float64), (types.float64, kind)):
            lower_builtin(operation, *pair)(lowered)


_operation(operator.add, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")
_operation(operator.truediv, "fdiv")


# ----------------------------------------------------------------------- rows of 16 numbers
def _lined(args):
    """Signature of an access to all numbers along the last axis of an array in C order."""
    if not args or not isinstance(args[0], types.Array) or args[0].layout != "C":
        return None
    if args[0].ndim != len(args) or args[0].dtype != types.float64:
        return None
    return (args[0], *[types.intp] * (len(args) - 1))


def _rows_of(n):
    """Typing of `n` rows, any of which but the first may be a number."""

    def typed(args):
        if len(args) != n or not set(args) <= {_wide, types.float64} or args[0] != _wide:
            return None
        return _wide(*args)

    return typed


def _set_row_typed(args):
    known = _lined(args[:-1]) if args and args[-1] == _wide else None
    return known and types.void(*known, _wide)


def _dot_typed(args):
    known = _lined(args[:2]) if len(args) == 6 else None
    return known and _wide(*known, *[types.intp] * 4)


def _pooled_typed(args):
    known = len(args) == 4 and (_lined(args[:2]), _element(args[2:] + (args[3],), ()))
    return _wide(*known[0], args[2], types.intp) if known and all(known) else None


def _row_typed(args):
    known = _lined(args)
    return known and _wide(*known)


_typed(row, _row_typed)
_typed(set_row, _set_row_typed)
_typed(dot, _dot_typed)
_typed(pooled, _pooled_typed)
_typed(wide, lambda args: _wide(types.float64))
_FIRST = (ir.IntType(64)(0),)


@lower_builtin(row, types.Array, types.VarArg(types.Any))
def _row(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:] or _FIRST, number=_WIDE)
    return _fetch(builder, place, _WIDE, align=8)


@lower_builtin(dot, types.Array, *[types.intp] * 5)
def _dot(context, builder, sig, args):
    kind, (i, p, j, q, n) = sig.args[0], args[1:]
    x, y = (_address(context, builder, kind, args[0], (k,), number=_WIDE) for k in (i, j))
    return _shared(builder, "dot", _dot_of, x, p, y, q, n)


def _dot_of(builder, x, p, y, q, n):
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("loop", "after"))
    zero, nothing = n.type(0), _all(builder, _NUMBER(0.0))
    builder.cbranch(builder.icmp_signed(">", n, zero), loop, after)
    builder.position_at_end(loop)
    k, sum_, a, b = (builder.phi(known.type) for known in (zero, nothing, x, y))
    known = [_fetch(builder, place, _WIDE, align=8) for place in (a, b)]
    more = _op(builder, "fadd", sum_, _op(builder, "fmul", *known))
    following, c, d = (
        builder.add(k, k.type(1)),
        _step(builder, a, _WIDE, p),
        _step(builder, b, _WIDE, q),
    )
    steps = (k, zero, following), (sum_, nothing, more), (a, x, c), (b, y, d)
    for phi, first, last in steps:
        phi.add_incoming(first, before)
        phi.add_incoming(last, loop)
    builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
    builder.position_at_end(after)
    found = builder.phi(_WIDE)
    found.add_incoming(nothing, before)
    found.add_incoming(more, loop)
    return found


@lower_builtin(pooled, types.Array, types.intp, types.Array, types.intp)
def _pooled(context, builder, sig, args):
    (rows, _, heads, _), (a, i, of, b) = sig.args, args
    x = builder.bitcast(
        _address(context, builder, rows, a, (i,), number=_WIDE), _NUMBER.as_pointer()
    )
    return _shared(
        builder, "pooled", _pool, x, _address(context, builder, heads, of, (b, b.type(0)))
    )


def _pool(builder, x, heads):
    whole, out = ir.IntType(64), ir.Constant(_WIDE, ir.Undefined)
    to = [_fetch(builder, _step(builder, heads, whole, whole(t)), whole) for t in range(WIDE)]
    places = [_step(builder, x, _NUMBER, t) for t in to]
    for t, place in enumerate(places):
        own = _fetch(builder, _step(builder, x, _NUMBER, whole(t)), _NUMBER)
        own = builder.select(builder.icmp_signed("!=", to[t], whole(t)), own, _NUMBER(0.0))
        builder.store(builder.fadd(_fetch(builder, place, _NUMBER), own), place)
    for t, place in enumerate(places):
        out = builder.insert_element(out, _fetch(builder, place, _NUMBER), _PLACE(t))
    builder.store(out, builder.bitcast(x, _WIDE.as_pointer()), align=8)
    return out


def _shared(builder, name, lowered, *args):
    """Call what `lowered` makes of its arguments: a function of which a library has one copy."""
    kind = ir.FunctionType(_WIDE, [x.type for x in args])
    name = f"skpmtl.{name}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, kind, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        inside = ir.IRBuilder(function.append_basic_block())
        inside.ret(lowered(inside, *function.args))
    return builder.call(function, args)


@lower_builtin(set_row, types.Array, types.VarArg(types.Any))
def _set_row(context, builder, sig, args):
    place = _address(context, builder, sig.args[0], args[0], args[1:-1] or _FIRST, number=_WIDE)
    builder.store(args[-1], place, align=8)
    return context.get_dummy_value()


def _all(builder, x, number=_NUMBER):
    """A row of one number."""
    kind = ir.VectorType(number, WIDE)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, x, _PLACE(0))
    places = ir.Constant(ir.VectorType(_PLACE, WIDE), [0] * WIDE)
    return builder.shuffle_vector(first, nothing, places)


@lower_builtin(wide, types.float64)
def _wide_of(context, builder, sig, args):
    return _all(builder, args[0])


def _of_rows(function, n, lowered, shared=False):
    """Lower a function of `n` rows, which `lowered` makes of a builder and these."""
    _typed(function, _rows_of(n))

    def all_wide(context, builder, sig, args):
        pairs = zip(args, sig.args, strict=True)
        rows = (x if kind == _wide else _all(builder, x) for x, kind in pairs)
        if shared:
            return _shared(builder, function.__name__, lowered, *rows)
        return lowered(builder, *rows)

    for rest in product((_Wide, types.float64), repeat=n - 1):
        lower_builtin(function, _Wide, *rest)(all_wide)


def _select(comparison):
    def lowered(builder, x, y):
        return builder.select(builder.fcmp_ordered(comparison, x, y), x, y)

    return lowered


def _chosen(builder, c, x, y):
    return builder.select(builder.fcmp_ordered(">", c, _all(builder, _NUMBER(0.0))), x, y)


def _sqrt(builder, x):
    kind = ir.FunctionType(_WIDE, [_WIDE])
    return builder.call(builder.module.declare_intrinsic(f"llvm.sqrt.v{WIDE}f64", (), kind), [x])


def _op(builder, instruction, x, y):
    """Sums of these must not be reordered, as those without flags are; see `_operation`."""
    x, y = (_all(builder, _NUMBER(a)) if isinstance(a, float) else a for a in (x, y))
    return getattr(builder, instruction)(x, y, flags=("contract",))


def _polynomial(builder, x, coefficients):
    """From the coefficient of the largest power on."""
    total = coefficients[0]
    for a in coefficients[1:]:
        total = _op(builder, "fadd", _op(builder, "fmul", x, total), a)
    return total


def _exp(builder, x):
    """exp(x) = 2^n exp(r): a sum with 1.5 2^52 rounds to n, and has n as its last bits, which are
    added to the exponent."""
    big = 1.5 * 2.0**52
    near = _op(builder, "fadd", _op(builder, "fmul", x, 1.4426950408889634), big)
    n = _op(builder, "fsub", near, big)
    r = _op(builder, "fsub", x, _op(builder, "fmul", n, 0.6931471805599453))
    p = _polynomial(builder, r, [1.0 / math.factorial(k) for k in range(10, -1, -1)])
    n = builder.shl(builder.bitcast(near, _BITS), _whole(builder, 52))
    return builder.bitcast(builder.add(builder.bitcast(p, _BITS), n), _WIDE)


def _whole(builder, number):
    return _all(builder, _BITS.element(number), _BITS.element)


def _log(builder, x):
    """x = 2^n z with z between sqrt(1 / 2) and sqrt(2), and log z = 2 artanh((z - 1) / (z + 1)).

    n is in the exponent: behind that of 2^52, it is a number."""
    least = 0x3FE6A09E667F3BCD  # of z
    bits = builder.sub(builder.bitcast(x, _BITS), _whole(builder, least))
    n = builder.lshr(builder.add(bits, _whole(builder, 1024 << 52)), _whole(builder, 52))
    n = builder.bitcast(builder.or_(n, _whole(builder, 0x433 << 52)), _WIDE)
    n = _op(builder, "fsub", n, 2.0**52 + 1024.0)
    z = builder.add(builder.and_(bits, _whole(builder, (1 << 52) - 1)), _whole(builder, least))
    z = builder.bitcast(z, _WIDE)
    s = _op(builder, "fdiv", _op(builder, "fsub", z, 1.0), _op(builder, "fadd", z, 1.0))
    q, s = _op(builder, "fmul", s, s), _op(builder, "fadd", s, s)
    p = _polynomial(builder, q, [*(1.0 / k for k in range(19, 1, -2)), 0.0])
    rest = _op(builder, "fadd", s, _op(builder, "fmul", s, p))
    return _op(builder, "fadd", _op(builder, "fmul", n, 0.6931471805599453), rest)


_of_rows(larger, 2, _select(">"))
_of_rows(smaller, 2, _select("<"))
_of_rows(chosen, 3, _chosen)
_of_rows(sqrt, 1, _sqrt)
_of_rows(exp, 1, _exp, shared=True)
_of_rows(log, 1, _log, shared=True)
