"""Native code on every compiled target, against the interpreter with its registered meanings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uops
from uops.backends import registry
from uops.backends.llvm.binding import LlvmTier, detect_host_without_gfni, emit_assembly
from uops.compiler import lower
from uops.compiler.native import register_function
from uops.interp import opaque
from uops.spec.errors import CompileError, Trap, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, show

#: What a test writes in the language of each target: xor with 5, a store, and the change of a bfloat16's sign, on its bits.
XOR = {"llvm": "xor i32 {0}, 5", "c": "({0} ^ 5)", "opencl": "({0} ^ 5)"}
PUT = {"llvm": "store i32 {1}, ptr {0}", "c": "{0} = {1};", "opencl": "{0} = {1};"}
SIGN = {"llvm": "xor i16 {0}, -32768", "c": "(u16)({0} ^ 0x8000)", "opencl": "(u16)({0} ^ 0x8000)"}
I32, U32, F32 = dt.int32, dt.uint32, dt.float32
DATA = np.array([3, 1, 4, 15], np.int32)


@pytest.fixture(params=["llvm", "c", "opencl"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        registry.create_backend(name)
    except Unsupported as e:
        pytest.skip(str(e))
    return name


@pytest.fixture(autouse=True)
def meanings() -> Iterator[None]:
    given: dict[tuple[Op, str], Callable[..., Any]] = {}
    for op in (Op.CUSTOM, Op.CUSTOMI):
        given |= {(op, t): lambda x: np.asarray(x) ^ np.int32(5) for t in XOR.values()}
        given |= {(op, t): np.negative for t in SIGN.values()}
    given |= {(Op.CUSTOM, t): lambda place, x: place.store(x) for t in PUT.values()}
    for (op, text), meaning in given.items():
        opaque.register(op, text, meaning)
    yield
    for op, text in given:
        opaque.register(op, text, None)


def agree(graph: UOp, backend: str, **inputs: Any) -> Any:
    """What a backend and the interpreter both give."""
    got, expected = uops.compile(graph, backend)(inputs), uops.run(graph, inputs)
    assert [x.tobytes() for x in got.values] == [x.tobytes() for x in expected.values]
    assert {k: x.tobytes() for k, x in got.buffers.items()} == {k: x.tobytes() for k, x in expected.buffers.items()}
    return got


def mapped(make: Callable[[UOp], UOp], d: dt.DType = I32, axis: AxisType = AxisType.LOOP) -> UOp:
    """A kernel: p0[i] = make(p1[i])."""
    i = b.range_(4, 1, axis)
    return b.sink(b.end(b.store(b.at(b.param(0, (4,), d), i), make(b.load(b.at(b.param(1, (4,), d), i)))), i), name="k")


def function(name: str) -> UOp:
    return UOp(Op.CUSTOM_FUNCTION, (), A.NameArg(name))


@pytest.mark.parametrize("axis", [AxisType.LOOP, AxisType.UPCAST, AxisType.GLOBAL, AxisType.THREAD], ids=lambda a: a.name)
@pytest.mark.parametrize("op", [Op.CUSTOM, Op.CUSTOMI], ids=lambda op: op.name)
def test_an_expression_of_the_target_has_a_value(backend: str, op: Op, axis: AxisType) -> None:
    kernel = mapped(lambda x: b.add(UOp(op, (x,), A.CustomArg(XOR[backend], I32)), 1), axis=axis)
    assert agree(kernel, backend, p0=np.zeros(4, np.int32), p1=DATA).buffers["p0"].tolist() == [7, 5, 2, 11]


@pytest.mark.parametrize("axis", [AxisType.LOOP, AxisType.UPCAST, AxisType.GLOBAL], ids=lambda a: a.name)
def test_a_line_of_the_target_writes_the_element_that_it_is_given(backend: str, axis: AxisType) -> None:
    i = b.range_(4, 1, axis)
    line = UOp(Op.CUSTOM, (b.at(b.param(0, (4,), I32), i), b.cast(i, I32)), A.CustomArg(PUT[backend], dt.void))
    assert agree(b.sink(b.end(line, i), name="k"), backend, p0=DATA).buffers["p0"].tolist() == [0, 1, 2, 3]


def test_a_line_may_write_registers(backend: str) -> None:
    register = UOp(Op.BUFFER, (), A.BufferArg(1, I32, "CPU", AddrSpace.REG, 1))
    i = b.range_(4, 1)
    clear = b.store(b.at(b.after(register, i), 0), b.const(0, I32))
    line = UOp(
        Op.CUSTOM, (b.at(b.after(register, clear), 0), b.load(b.at(b.param(1, (4,), I32), i))), A.CustomArg(PUT[backend], dt.void)
    )
    kernel = b.sink(b.end(b.store(b.at(b.param(0, (4,), I32), i), b.load(b.at(b.after(register, line), 0))), i), name="k")
    assert agree(kernel, backend, p0=np.zeros(4, np.int32), p1=DATA).buffers["p0"].tolist() == DATA.tolist()


def test_native_text_stands_on_both_sides_of_a_barrier(backend: str) -> None:
    lane = UOp(Op.SPECIAL, (b.index(4),), A.SpecialArg("lidx0"))
    local = UOp(Op.BUFFER, (), A.BufferArg(4, I32, "CPU", AddrSpace.LOCAL, 1))
    value = UOp(Op.CUSTOM, (b.load(b.at(b.param(1, (4,), I32), lane)),), A.CustomArg(XOR[backend], I32))
    barrier = UOp(Op.BARRIER, (b.store(b.at(local, lane), value),))
    other = b.load(b.at(b.after(local, barrier), b.sub(3, lane)))
    kernel = b.sink(b.store(b.at(b.param(0, (4,), I32), lane), b.add(other, value)), name="k")
    assert agree(kernel, backend, p0=np.zeros(4, np.int32), p1=DATA).buffers["p0"].tolist() == [16, 5, 5, 16]


def test_a_small_float_is_its_bits(backend: str) -> None:
    kernel = mapped(lambda x: UOp(Op.CUSTOMI, (x,), A.CustomArg(SIGN[backend], dt.bfloat16)), dt.bfloat16)
    x = np.array([1, -2, 0, 3.5], ml_dtypes.bfloat16)
    assert agree(kernel, backend, p0=x, p1=x).buffers["p0"].tolist() == [-1, 2, 0, -3.5]


def test_text_that_the_target_rejects_is_the_text_s_fault(backend: str) -> None:
    kernel = mapped(lambda x: UOp(Op.CUSTOM, (x,), A.CustomArg("no such {0} ((", I32)))
    with pytest.raises(CompileError, match=f"{backend} rejects a kernel with native text"):
        uops.compile(kernel, backend)


@pytest.mark.parametrize("name", ["popcnt", "bswap"])
@pytest.mark.parametrize("d", [U32, dt.uint64], ids=str)
def test_an_instruction_of_the_machine(backend: str, name: str, d: dt.DType) -> None:
    kernel = mapped(lambda x: UOp(Op.INS, (x,), A.InsArg(name, d)), d)
    x = np.array([0, 1, 0xFFFFFFFF, 0x01020304], d.array_name)
    agree(kernel, backend, p0=np.zeros_like(x), p1=x)


@pytest.mark.parametrize("name", ["popcnt", "bswap"])
def test_an_instruction_is_one_on_this_machine(name: str) -> None:
    host = detect_host_without_gfni()
    if not host.triple.startswith("x86_64") or not host.has("popcnt"):
        pytest.skip("the mnemonics are those of x86-64")
    target = registry.create_backend("llvm").target
    linear = lower(mapped(lambda x: UOp(Op.INS, (x,), A.InsArg(name, U32)), U32), target, "plan", dialect=uops.Dialect.SCHEDULED)
    assembly = emit_assembly(target.render(linear.src[0].body), host, LlvmTier.FAST)
    assert f"{name}l" in assembly


def test_functions_run_between_kernels(backend: str) -> None:
    x, y, z = (b.buffer(8, F32, unique=k) for k in (1, 2, 3))
    down = b.after(y, b.call(function("sort"), y, b.mul(x, -1.0), written=(0,)))
    up = b.after(z, b.call(function("sort"), z, b.mul(down, -1.0), written=(0,)))
    data = np.random.default_rng(0).standard_normal(8).astype(np.float32)
    rest = {"b2": np.zeros(8, np.float32), "b3": np.zeros(8, np.float32)}
    assert agree(up, backend, b1=data, **rest).values[0].tolist() == sorted(data.tolist())


def test_a_checksum_and_a_stream(backend: str) -> None:
    import zlib

    out, text = b.buffer(1, U32, unique=1), b.buffer(6, dt.uint8, unique=2)
    stream = np.frombuffer(zlib.compress(b"native"), np.uint8)
    decoded = b.after(text, b.call(function("EncDec"), text, b.param(0, stream.shape, dt.uint8), written=(0,)))
    checked = b.after(out, b.call(function("crc32"), out, decoded, written=(0,)))
    result = agree(checked, backend, p0=stream, b1=np.zeros(1, np.uint32), b2=np.zeros(6, np.uint8))
    assert result.values[0].tolist() == [zlib.crc32(b"native")]
    with pytest.raises(Trap, match="EncDec"):
        uops.compile(checked, backend)({"p0": stream[::-1].copy()})


def test_a_function_gets_variables_and_memory_of_symbolic_size(backend: str) -> None:
    n = b.variable("n", 1, 9)
    out, values = b.buffer(9, I32, unique=5), b.param(0, (n,), I32)

    def mark(out: Any, values: Any, n: int) -> None:
        out[:] = 100 * len(values) + n

    register_function("mark", mark)
    opaque.register(Op.CUSTOM_FUNCTION, "mark", lambda out, values, n: np.full_like(out, 100 * len(values) + n))
    graph = b.after(out, b.call(function("mark"), out, values, n, written=(0,)))
    for k in (1, 6):
        agree(graph, backend, p0=np.zeros(k, np.int32), n=k, b5=np.zeros(9, np.int32))
    register_function("mark", None)
    opaque.register(Op.CUSTOM_FUNCTION, "mark", None)


def test_a_function_writes_only_what_its_call_declares(backend: str) -> None:
    def write_source(out: Any, source: Any) -> None:
        source[:] = 1

    register_function("write_source", write_source)
    out = b.buffer(4, I32, unique=1)
    graph = b.after(out, b.call(function("write_source"), out, b.param(0, (4,), I32), written=(0,)))
    with pytest.raises(ValueError, match="read-only"):
        uops.compile(graph, backend)({"p0": DATA})
    register_function("write_source", None)
    with pytest.raises(Unsupported, match="CustomFunction write_source: it is not registered"):
        uops.compile(graph, backend)


def program_that_doubles(backend: str) -> UOp:
    out, x = b.buffer(4, F32, unique=3), b.param(0, (4,), F32)
    return lower(b.sink(b.store(out, b.add(x, x))), registry.create_backend(backend).target)


def test_a_program_made_earlier_is_a_kernel_of_another_program(backend: str) -> None:
    launch = parse(show(program_that_doubles(backend)))
    out, x = b.buffer(4, F32, unique=9), b.param(0, (4,), F32)
    graph = b.add(b.after(out, b.call(launch.src[0].body, out, b.mul(x, 3.0), written=(0,))), 1.0)
    assert agree(graph, backend, p0=np.arange(4, dtype=np.float32)).values[0].tolist() == [1, 7, 13, 19]
    whole = uops.compile(launch, backend, dialect="program")({"p0": np.arange(4, dtype=np.float32)})
    assert whole.buffers["b3"].tolist() == [0, 2, 4, 6]


def test_the_binary_runs_and_not_the_list(backend: str) -> None:
    """A Program whose Linear is another kernel's still does what its binary does."""
    (call,) = program_that_doubles(backend).src
    _, source, binary = call.body.src
    out, x = b.buffer(4, F32, unique=3), b.param(0, (4,), F32)
    (other,) = lower(b.sink(b.store(out, b.mul(x, 7.0))), registry.create_backend(backend).target).src
    swapped = UOp(Op.PROGRAM, (other.body.src[0], source, binary))
    launch = UOp(Op.LINEAR, (call.replace(src=(swapped, *call.arguments)),))
    assert uops.compile(launch, backend)({"p0": np.ones(4, np.float32)}).buffers["b3"].tolist() == [2, 2, 2, 2]


def test_a_program_of_another_target_is_refused(backend: str) -> None:
    other = {"llvm": "c", "c": "llvm", "opencl": "c"}[backend]
    with pytest.raises(CompileError, match=rf"R169 .*compiled for the target '{other} \w+', expected '{backend} \w+'"):
        uops.compile(program_that_doubles(other), backend, dialect="program")


def test_a_program_keeps_the_bounds_that_it_was_compiled_for(backend: str) -> None:
    n, x, out = b.variable("n", 1, 9), b.param(0, (4,), I32), b.buffer(4, I32, unique=3)
    launch = lower(b.sink(b.store(out, b.add(x, b.cast(n, I32)))), registry.create_backend(backend).target)
    (call,) = launch.src

    def on(variable: UOp) -> UOp:
        arguments = [variable if a.op is Op.PARAM and a.arg.name else a for a in call.arguments]
        return b.after(out, b.call(call.body, *arguments, written=(0,)))

    agree(on(b.variable("m", 2, 5)), backend, p0=DATA, m=3)
    with pytest.raises(CompileError, match=r"argument 2 needs a variable within \[1, 9\], got \[0, 5\]"):
        uops.compile(on(b.variable("m", 0, 5)), backend)
