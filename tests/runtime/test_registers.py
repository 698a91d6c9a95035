"""Instructions for eight numbers with pointers that do not know what they point to."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding, ir
from numba import types
from numba.core.registry import cpu_target

from skpmtl._runtime import registers

LANES, ROWS = registers.LANES, registers.ROWS
pytestmark = pytest.mark.skipif(not registers._ASKED, reason="llvmlite has typed pointers only")


class Opaque:
    """numba's view of types, but for the pointer to the entries of an array."""

    def __init__(self, kind):
        self.target = cpu_target.target_context
        fields = list(self.target.data_model_manager[kind].get_data_type().elements)
        fields[self.target.data_model_manager[kind].get_field_position("data")] = ir.PointerType()
        self.array = ir.LiteralStructType(fields)

    def __getattr__(self, name):
        return getattr(self.target, name)

    def get_dummy_value(self):
        return None


def run(lower, kind, a, out):
    """Call lower(context, builder, array, pointer to out) on the rows of a."""
    context, size = Opaque(kind), ir.IntType(64)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()] * 2), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    model = context.data_model_manager[kind]
    array = ir.Constant(context.array, ir.Undefined)
    array = builder.insert_value(array, function.args[0], model.get_field_position("data"))
    for axis, stride in enumerate(a.strides):
        place = (model.get_field_position("strides"), axis)
        array = builder.insert_value(array, size(stride), place)
    lower(context, builder, array, function.args[1])
    builder.ret_void()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    engine = binding.create_mcjit_compiler(
        parsed, binding.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    pointers = (ctypes.c_void_p(x.ctypes.data) for x in (a, out))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))(
        *pointers
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["load", "same", "along"])
def test_read(name, dtype):
    lowered = getattr(registers, f"_{name}")
    a = np.random.default_rng(0).standard_normal((6, 20)).astype(dtype)
    kind = types.Array(types.float32 if dtype == np.float32 else types.float64, 2, "C")
    expected = getattr(registers, name)(a, 1, 3)

    def lower(context, builder, array, out):
        size = ir.IntType(64)
        sig = types.void(kind, types.intp, types.intp)
        x = lowered(context, builder, sig, (array, size(1), size(3)))
        builder.store(x, out, align=8)

    out = np.zeros(expected.shape)
    run(lower, kind, a, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["store", "store4"])
def test_write(name):
    lowered = getattr(registers, f"_{name}")
    kind, a = types.Array(types.float64, 2, "C"), np.zeros((6, 20))
    x = np.random.default_rng(1).standard_normal((ROWS, LANES) if name == "store4" else LANES)
    register = registers._REGISTERS if name == "store4" else registers._REGISTER

    def lower(context, builder, array, source):
        size = ir.IntType(64)
        sig = types.void(kind, types.intp, types.intp, types.float64)
        value = builder.load(source, align=8, typ=register)
        lowered(context, builder, sig, (array, size(1), size(3), value))

    expected = a.copy()
    getattr(registers, name)(expected, 1, 3, x)
    run(lower, kind, a, x)
    np.testing.assert_array_equal(a, expected)


def test_rows_are_those_of_numpy():
    """Whole rows, exponentials and logarithms: twelve digits, over all that is allowed."""
    from skpmtl._runtime.jit import njit
    from skpmtl._runtime.registers import chosen, exp, larger, log, row, set_row, smaller, sqrt

    @njit
    def kernel(a, out):
        x, y = row(a, 0), row(a, 1)
        set_row(out, 0, exp(x))
        set_row(out, 1, log(y))
        set_row(out, 2, chosen(x, sqrt(y), 2.0))
        set_row(out, 3, larger(smaller(x, 1.0 / y), -3.0 + y))

    a = np.stack([np.linspace(-700.0, 700.0, registers.WIDE), np.logspace(-300, 300, 32)])
    out, expected = np.empty((4, registers.WIDE)), np.empty((4, registers.WIDE))
    kernel(a, out)
    getattr(kernel, "py_func", kernel)(a, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(out[:2], [np.exp(a[0]), np.log(a[1])], rtol=1e-12)
