"""Kernels over tasks side by side, which Python itself writes down while it runs through them.

numba takes a millisecond for every statement. A traced kernel is plain Python that runs once when
it is compiled, on numbers that put down an instruction for all that is done with them: rows of 16,
one for each of so many tasks, and those that all share. What is the same for all calls, such as a
kind of target, decides by a plain ``if`` what is put down. Not compiled, the same code runs on
arrays.

What depends on numbers is asked for by `loop`, which no ``break`` leaves, `when` and `chosen`. What
changes in a loop is `held`, and changes in place only: ``total += x``, ``top[:] = larger(top, x)``.
A row that is read from an array must not be used after the array was changed there. Indices are not
checked and not negative.
"""

import inspect
import math
from types import SimpleNamespace

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, type_callable

WIDE = 16  # numbers of a row
_WHOLE, _NUMBER, _PLACE = ir.IntType(64), ir.DoubleType(), ir.IntType(32)
_ROW, _BITS = ir.VectorType(_NUMBER, WIDE), ir.VectorType(_WHOLE, WIDE)
_builders: list = []  # of what is being put down; numba compiles one kernel at a time


def traced(function):
    """Let numba call a kernel of one tuple: of None, numbers, tuples, and arrays in C order, which
    are numbers along one axis, whole numbers, or rows of 16 numbers along the axes but the last.
    All have 64 bits.

    Who calls it names all that is in the tuple: given ``*arguments``, a long tuple, numba 0.60 may
    run what it compiled for other types.
    """

    def lowered(context, builder, sig, args):
        _builders.append(builder)
        try:
            function(_given(context, sig.args[0], args[0]))
        finally:
            _builders.pop()
        return context.get_dummy_value()

    type_callable(function)(lambda context: lambda given: types.void(given))
    lower_builtin(function, types.BaseTuple)(lowered)


def _given(context, kind, value):
    builder = _builders[-1]
    if isinstance(kind, types.NoneType):
        return None
    if isinstance(kind, types.BaseTuple):
        values = (builder.extract_value(value, i) for i in range(len(kind)))
        return tuple(_given(context, *pair) for pair in zip(kind, values, strict=True))
    number = getattr(kind, "dtype", kind)
    if number not in (types.int64, types.float64, types.boolean):
        raise TypeError(f"Traced kernels take int64 and float64, not {number}.")
    if not isinstance(kind, types.Array):
        return _Number(value)
    if kind.layout != "C":
        raise TypeError("Traced kernels take arrays in C order: numpy.ascontiguousarray makes one.")
    at = context.data_model_manager[kind].get_field_position
    data, shape = (builder.extract_value(value, at(name)) for name in ("data", "shape"))
    shape = [_Number(builder.extract_value(shape, i)) for i in range(kind.ndim)]
    entry = context.get_data_type(kind.dtype)
    if kind.ndim > 1 and entry == _NUMBER:
        shape, entry = shape[:-1], _ROW
    return _Rows(builder.bitcast(data, entry.as_pointer()), entry, shape)


# ----------------------------------------------------------------------------------- numbers
def _kind(*numbers):
    """The simplest that all of these are."""
    kinds = [x.kind if isinstance(x, _Number) else type(x) for x in numbers]
    if _ROW in kinds:
        return _ROW
    return _NUMBER if _NUMBER in kinds or float in kinds else _WHOLE


def _lifted(x, kind):
    """A number as one of this kind."""
    builder = _builders[-1]
    value = x.value if isinstance(x, _Number) else (_WHOLE if type(x) is int else _NUMBER)(x)
    if kind != _WHOLE and value.type == _WHOLE:
        value = builder.sitofp(value, _NUMBER)
    return _all(value) if kind == _ROW != value.type else value


def _all(value):
    """A row of one number."""
    kind, builder = ir.VectorType(value.type, WIDE), _builders[-1]
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, _PLACE(0))
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(_PLACE, WIDE), [0] * WIDE)
    )


def _operation(name, swapped=False):
    def of_two(self, other):
        kind = _kind(self, other)
        x, y = (_lifted(a, kind) for a in ((other, self) if swapped else (self, other)))
        if kind == _WHOLE:
            return _Number(getattr(_builders[-1], name)(x, y))
        # A product may be joined to the sum that takes it, on processors that can. Sums must not be
        # reordered.
        return _Number(getattr(_builders[-1], f"f{name}")(x, y, flags=("contract",)))

    return of_two


def _comparison(sign):
    def of_two(self, other):
        kind = _kind(self, other)
        compare = _builders[-1].icmp_signed if kind == _WHOLE else _builders[-1].fcmp_ordered
        return _Number(compare(sign, _lifted(self, kind), _lifted(other, kind)))

    return of_two


class _Number:
    """A whole number, a number, or a row of 16."""

    __array_ufunc__ = None  # numbers of numpy leave operations to these

    def __init__(self, value):
        self.value = value

    def __bool__(self):
        raise TypeError("A number is not known yet: `when` and `chosen` ask for it, not `if`.")

    @property
    def kind(self):
        return self.value.type

    __add__, __radd__ = _operation("add"), _operation("add", True)
    __sub__, __rsub__ = _operation("sub"), _operation("sub", True)
    __mul__, __rmul__ = _operation("mul"), _operation("mul", True)
    __truediv__, __rtruediv__ = _operation("div"), _operation("div", True)
    __gt__, __lt__, __eq__ = _comparison(">"), _comparison("<"), _comparison("==")


# Newer pointers of llvmlite do not know what they point to, and older functions do not ask for it.
_ASKED = "typ" in inspect.signature(ir.IRBuilder.load).parameters  # since 0.44


def _step(builder, place, kind, index):
    """The address of entry `index` from `place` on, where numbers of a kind lie."""
    return builder.gep(place, [index], **({"source_etype": kind} if _ASKED else {}))


def _fetch(builder, place, kind, **options):
    place = builder.bitcast(place, kind.as_pointer())
    return builder.load(place, **options, **({"typ": kind} if _ASKED else {}))


class _Rows:
    """Numbers, or rows of 16, along axes."""

    def __init__(self, place, entry, shape, strides=None):
        self.place, self.entry, self.shape = place, entry, tuple(shape)
        self.strides = strides or [math.prod(shape[i + 1 :]) for i in range(len(shape))]

    def _at(self, index):
        """Those at whole numbers and slices of them."""
        index = index if isinstance(index, tuple) else (index,)
        shape, strides, jump = [], [], 0
        for i, size, stride in zip(index, self.shape, self.strides, strict=False):
            if isinstance(i, slice):
                stop, i = size if i.stop is None else i.stop, 0 if i.start is None else i.start
                shape.append(stop - i)
                strides.append(stride)
            jump = jump + i * stride
        place = _step(_builders[-1], self.place, self.entry, _lifted(jump, _WHOLE))
        n = len(index)
        return _Rows(place, self.entry, (*shape, *self.shape[n:]), [*strides, *self.strides[n:]])

    def __getitem__(self, index):
        found = self._at(index)
        if found.shape:
            return found
        options = {"align": 8} if self.entry == _ROW else {}
        return _Number(_fetch(_builders[-1], found.place, self.entry, **options))

    def __setitem__(self, index, x):
        _builders[-1].store(_lifted(x, self.entry), self._at(index).place, align=8)


class _Held(_Rows, _Number):
    """One row."""

    kind = _ROW

    @property
    def value(self):
        return self[()].value

    def __setitem__(self, _, x):
        super().__setitem__((), x)

    def __iadd__(self, x):  # type: ignore[misc]
        self[:] = self + x
        return self


def held(x):
    """A row of 16 numbers that can change in place, at first x."""
    if not _builders:
        return np.full(WIDE, x, dtype=float)
    with _builders[-1].goto_entry_block():
        found = _Held(_builders[-1].alloca(_ROW), _ROW, ())
    found[:] = x
    return found


def parts(rows, shapes):
    """Rows (..., R, 16) by name, one after the other, for {name: shape}."""
    at, found = 0, {}
    for name, shape in shapes.items():
        size = math.prod(shape)
        if isinstance(rows, _Rows):
            found[name] = (_Rows if shape else _Held)(rows[at:].place, rows.entry, shape)
        else:
            found[name] = rows[..., at : at + size, :].reshape(*rows.shape[:-2], *shape, WIDE)
        at = at + size
    return SimpleNamespace(**found)


# -------------------------------------------------------------------- what depends on numbers
def loop(first, last=None, going=None):
    """Numbers first, ..., last - 1, or 0, ..., first - 1, and while ``going()`` after each."""
    first, last = (0, first) if last is None else (first, last)
    if not _builders or (isinstance(last, int) and last == 1):
        for i in range(first, last):
            yield i
            if going is not None and not going():
                return
        return
    builder, before = _builders[-1], _builders[-1].block
    first, last = _lifted(first, _WHOLE), _lifted(last, _WHOLE)
    body, after = (builder.append_basic_block(name) for name in ("loop", "after"))
    builder.cbranch(builder.icmp_signed("<", first, last), body, after)
    builder.position_at_end(body)
    i = builder.phi(_WHOLE)
    yield _Number(i)
    following = builder.add(i, _WHOLE(1))
    more = builder.icmp_signed("<", following, last)
    if going is not None:
        more = builder.and_(more, going().value)
    i.add_incoming(first, before)
    i.add_incoming(following, builder.block)
    builder.cbranch(more, body, after)
    builder.position_at_end(after)


def when(condition):
    """Once where a condition holds, and never elsewhere: ``for _ in when(n > 0)``."""
    if not isinstance(condition, _Number):
        yield from range(int(condition))
        return
    builder = _builders[-1]
    body, after = (builder.append_basic_block(name) for name in ("when", "after"))
    builder.cbranch(condition.value, body, after)
    builder.position_at_end(body)
    yield 0
    builder.branch(after)
    builder.position_at_end(after)


def chosen(condition, x, y):
    """x where a condition holds, and y elsewhere."""
    if not _builders:
        return np.where(condition, x, y)
    kind = _ROW if condition.value.type.__class__ is ir.VectorType else _kind(x, y)
    values = (_lifted(a, kind) for a in (x, y))
    return _Number(_builders[-1].select(condition.value, *values))


# ------------------------------------------------------------------------- functions of rows
def _once(function):
    """Put down a function of numbers and addresses once in a library, and call it from there."""

    def called(*args):
        builder = _builders[-1]
        values = [x if isinstance(x, ir.Value) else _lifted(x, _kind(x)) for x in args]
        name = f"skpmtl.{function.__name__}"
        put = builder.module.globals.get(name)
        if put is None:
            kind = ir.FunctionType(_ROW, [x.type for x in values])
            put = ir.Function(builder.module, kind, name)
            put.linkage = "linkonce_odr"
            put.attributes.add("noinline")
            _builders.append(ir.IRBuilder(put.append_basic_block()))
            try:
                given = [x if x.type.is_pointer else _Number(x) for x in put.args]
                _builders[-1].ret(function(*given).value)
            finally:
                _builders.pop()
        return _Number(builder.call(put, values))

    return called


def dot(x, y):
    """Sum of the products of all rows of x with those of y."""
    n = x.shape[0]
    y = y[:n]
    if not _builders:
        return np.sum(x * y, axis=0)
    return _dot(x.place, *x.strides, y.place, *y.strides, n)


@_once
def _dot(x, p, y, q, n):
    x, y, total = _Rows(x, _ROW, (n,), [p]), _Rows(y, _ROW, (n,), [q]), held(0.0)
    for i in loop(n):
        total += x[i] * y[i]
    return total


def flat(rows):
    """Rows that lie one after the other, along one axis."""
    if not _builders:
        return rows.reshape(-1, WIDE)
    return _Rows(rows.place, rows.entry, (math.prod(rows.shape),))


def pool(rows, heads, b):
    """Rows <- in every lane, sums over all lanes t with the same heads[b, t] <= t."""
    for _ in when(heads.shape[0] > 0):
        rows, heads = flat(rows), heads[b]
        if _builders:
            _pool_at(rows.place, rows.shape[0], heads.place)
        else:
            _pool(rows, heads)


@_once
def _pool_at(rows, n, heads):
    rows = _builders[-1].bitcast(rows, _NUMBER.as_pointer())
    _pool(_Rows(rows, _NUMBER, (n, WIDE)), _Rows(heads, _WHOLE, (WIDE,)))
    return held(0.0)


def _pool(rows, heads):
    for i in loop(rows.shape[0]):
        for t in loop(WIDE):
            for _ in when(heads[t] < t):
                rows[i, heads[t]] = rows[i, heads[t]] + rows[i, t]
        for t in loop(WIDE):
            rows[i, t] = rows[i, heads[t]]


def pooled(row, heads, b):
    """The same of one row, which stays."""
    sums = held(row)
    pool(sums, heads, b)
    return sums


def larger(x, y):
    """The larger ones of the numbers of two rows."""
    return chosen(x > y, x, y)


def smaller(x, y):
    return chosen(x < y, x, y)


def largest(x):
    """Of the 16 numbers of a row; one that is none decides for no other task."""
    x = larger(x, -math.inf)
    if not _builders:
        return np.max(x)
    for half in (8, 4, 2, 1):
        places = ir.Constant(ir.VectorType(_PLACE, WIDE), [i ^ half for i in range(WIDE)])
        x = larger(x, _Number(_builders[-1].shuffle_vector(x.value, x.value, places)))
    return _Number(_builders[-1].extract_element(x.value, _PLACE(0)))


def sqrt(x):
    if not isinstance(x, _Number):
        return np.sqrt(x)
    builder, kind = _builders[-1], x.value.type
    name = f"llvm.sqrt.{f'v{WIDE}' if kind == _ROW else ''}f64"
    put = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind]))
    return _Number(builder.call(put, [x.value]))


def exp(x):
    """exp(x) of x in -700 ... 700 to 12 digits."""
    return _exp(x) if _builders else np.exp(x)


def log(x):
    """Logarithm of positive normal numbers to 15 digits."""
    return _log(x) if _builders else np.log(x)


def _polynomial(x, coefficients):
    """From the coefficient of the largest power on."""
    total = coefficients[0]
    for a in coefficients[1:]:
        total = x * total + a
    return total


@_once
def _exp(x):
    """exp(x) = 2^n exp(r): a sum with 1.5 2^52 rounds to n, and has n as its last bits, which are
    added to the exponent."""
    builder, big = _builders[-1], 1.5 * 2.0**52
    near = x * 1.4426950408889634 + big
    r = x - (near - big) * 0.6931471805599453
    p = _polynomial(r, [1.0 / math.factorial(k) for k in range(10, -1, -1)])
    near, p = (builder.bitcast(a.value, _BITS) for a in (near, p))
    n = builder.shl(near, _all(_WHOLE(52)))
    return _Number(builder.bitcast(builder.add(p, n), _ROW))


@_once
def _log(x):
    """x = 2^n z with z between sqrt(1 / 2) and sqrt(2), and log z = 2 artanh((z - 1) / (z + 1)).

    n is in the exponent: behind that of 2^52, it is a number."""
    builder, least = _builders[-1], _all(_WHOLE(0x3FE6A09E667F3BCD))  # of z
    bits = builder.sub(builder.bitcast(x.value, _BITS), least)
    n = builder.lshr(builder.add(bits, _all(_WHOLE(1024 << 52))), _all(_WHOLE(52)))
    n = _Number(builder.bitcast(builder.or_(n, _all(_WHOLE(0x433 << 52))), _ROW))
    z = builder.add(builder.and_(bits, _all(_WHOLE((1 << 52) - 1))), least)
    z = _Number(builder.bitcast(z, _ROW))
    s = (z - 1.0) / (z + 1.0)
    q, s = s * s, s + s
    p = _polynomial(q, [*(1.0 / k for k in range(19, 1, -2)), 0.0])
    return (n - (2.0**52 + 1024.0)) * 0.6931471805599453 + (s + s * p)
