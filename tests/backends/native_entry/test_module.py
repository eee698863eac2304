"""Programs as builtins: they agree with the same programs in Python, take only what is exactly right, and leave nothing behind."""

import gc
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uops
from uops.backends import registry
from uops.backends.cache import ObjectCache
from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.native_entry import module, table
from uops.compiler import Config, compile
from uops.compiler.runtime.program import Compiled
from uops.spec.errors import CompileError, SpecError, Trap, UopsError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions

TARGET = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
Pair = tuple[Compiled, Compiled]


def p(slot: int, *shape: Any, d: Any = dt.float32) -> UOp:
    return B.param(slot, shape, d)


def variable() -> UOp:
    return B.variable("n", -3, 9)


def _written() -> UOp:
    a, x = B.buffer(5, dt.float32, unique=7), p(1, 5)
    return B.tuple_(B.after(a, B.store(a, B.add(a, x))), B.after(x, B.store(x, B.neg(x))))


def rows(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


#: Programs, and arguments for them.
PROGRAMS: dict[str, tuple[Callable[[], UOp], list[Any]]] = {
    "three ops": (lambda: B.mul(B.add(B.mul(p(0, 16), p(1, 16)), p(0, 16)), p(1, 16)), [rows(0, 16), rows(1, 16)]),
    "no argument": (lambda: B.add(B.cast(compositions.arange(5), dt.float32), 0.5), []),
    "two values": (lambda: B.tuple_(B.add(p(0, 2, 3), 1.0), B.reduce(p(0, 2, 3), Op.ADD, (1,))), [rows(2, 2, 3)]),
    "an intermediate": (lambda: B.sub(p(0, 8, 8), B.contiguous(B.permute(B.mul(p(0, 8, 8), 3.0), (1, 0)))), [rows(3, 8, 8)]),
    "large intermediates": (lambda: B.sub(p(0, 90, 90), B.contiguous(B.permute(p(0, 90, 90), (1, 0)))), [rows(4, 90, 90)]),
    "no elements": (lambda: B.add(p(0, 0, 4), 1.0), [rows(5, 0, 4)]),
    "a scalar": (lambda: B.add(p(0), 1.0), [np.array(2.5, np.float32)]),
    "bools": (lambda: B.not_(p(0, 29, d=dt.bool_)), [np.arange(29) % 3 == 0]),
    "a variable": (lambda: B.add(p(0, 4, d=dt.int64), B.cast(variable(), dt.int64)), [np.arange(4), 5]),
    "small floats": (lambda: B.add(p(0, 3, d=dt.bfloat16), p(0, 3, d=dt.bfloat16)), [np.array([1, 2, 3], ml_dtypes.bfloat16)]),
    "index values": (lambda: B.maximum(p(0, 2, d=dt.index), 0), [np.array([-1, 7])]),
    "memory that is written": (_written, [rows(6, 5), rows(7, 5)]),
    "zeros": (lambda: B.add(B.buffer(5, dt.float32, unique=3), p(0, 5)), [rows(8, 5)]),
}


def both(graph: UOp) -> Pair:
    native, python = (compile(graph, TARGET, Config(verify=True, reuse=False, entry=way)) for way in ("native", "ctypes"))
    assert isinstance(native.function, types.BuiltinFunctionType)
    assert not isinstance(python.function, types.BuiltinFunctionType)
    return native, python


def tuple_of(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def assert_same(found: Any, expected: Any) -> None:
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    for a, b in zip(tuple_of(found), tuple_of(expected), strict=True):
        assert type(a) is type(b) is np.ndarray
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        assert a.flags.writeable and a.flags.aligned and a.flags.c_contiguous


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or the kind and the text of its error."""
    try:
        return call(*arguments)
    except (UopsError, TypeError, ValueError) as e:
        return type(e), str(e)


def assert_same_outcome(pair: Pair, arguments: list[Any]) -> None:
    found, expected = (outcome(program.function, *arguments) for program in pair)
    if isinstance(expected, tuple) and expected and isinstance(expected[0], type):
        assert found == expected
    else:
        assert_same(found, expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_builtin_agrees_with_python(name: str) -> None:
    make, arguments = PROGRAMS[name]
    native, python = both(make())
    assert_same(native.function(*arguments), python.function(*arguments))
    inputs = dict(zip(native.keys, arguments))
    for program in (native, python):
        values, buffers = program(inputs)
        assert_same((*values, *buffers.values()), tuple_of(python.function(*arguments)))
        assert tuple(buffers) == program.written_keys


def recorder(program: Compiled) -> tuple[Callable[..., Any], list[Any]]:
    """The builtin of a program with a fallback that only notes its arguments."""
    seen: list[Any] = []

    def fallback(*arguments: Any) -> str:
        seen.append(arguments)
        return "fallback"

    entered = TARGET.enter(program._describe_program_for_native_entry(1), fallback)
    assert entered is not None and entered.function is not None
    return entered.function, seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_that_are_exactly_right_need_no_python(name: str) -> None:
    make, arguments = PROGRAMS[name]
    native, python = both(make())
    call, seen = recorder(native)
    missing = [None] * (len(native.keys) - len(arguments))
    assert_same(call(*arguments, *missing), python.function(*arguments))
    assert seen == []


class Sub(np.ndarray):
    pass


X = rows(9, 4, 6)
UNUSUAL = {
    "not contiguous": rows(9, 6, 4).T,
    "strided": rows(9, 4, 12)[:, ::2],
    "backwards": X[:, ::-1],
    "another dtype": X.astype(np.float64),
    "another shape": X.reshape(6, 4),
    "another rank": X.reshape(24),
    "one element of it": X[0, 0],
    "a subclass": X.view(Sub),
    "a list": X.tolist(),
    "None": None,
    "another byte order": X.astype(">f4"),
    "not aligned": np.frombuffer(b"x" + X.tobytes(), np.float32, 24, 1).reshape(4, 6),
    "an int": 3,
    "objects": X.astype(object),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_argument_goes_to_the_fallback_and_both_ways_agree(name: str) -> None:
    pair = both(B.add(p(0, 4, 6), 1.0))
    call, seen = recorder(pair[0])
    argument = UNUSUAL[name]
    assert call(argument) == "fallback"
    assert len(seen) == 1 and seen[0][0] is argument
    assert_same_outcome(pair, [argument])


@pytest.mark.parametrize(
    ("count", "error"), [(0, "'p0' is missing"), (1, "'p1' is missing"), (3, r"expected 2 arguments \(p0, p1\), got 3")]
)
def test_a_wrong_number_of_arguments_is_said(count: int, error: str) -> None:
    for program in both(B.add(p(0, 3), p(1, 3))):
        with pytest.raises(SpecError, match=error):
            program.function(*[rows(0, 3)] * count)
        with pytest.raises(TypeError):
            program.function(p0=rows(0, 3))


@pytest.mark.parametrize("value", [-3, 9, -4, 10, 1 << 70, -1, True, 2.0, 2.5, np.int64(4), np.array(4), "4", None])
def test_a_variable_is_an_int_within_its_bounds_on_both_ways(value: Any) -> None:
    pair = both(PROGRAMS["a variable"][0]())
    assert_same_outcome(pair, [np.arange(4), value])
    found = outcome(pair[0].function, np.arange(4), value)
    assert not isinstance(found, tuple) or found[0] in (SpecError, Trap)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1 << 80), (-(1 << 80), 3), (-(1 << 80), 1 << 80), (1 << 64, 1 << 65), (-(1 << 65), -(1 << 64))]
)
@pytest.mark.parametrize("value", [0, 5, (1 << 63) - 1, -(1 << 63), 1 << 64, -(1 << 64), 1 << 79, 1 << 81, -(1 << 81)])
def test_bounds_beyond_int64_are_bounds_on_both_ways(low: int, high: int, value: int) -> None:
    pair = both(B.add(p(0, 2), B.cast(B.mul(B.variable("n", low, high), 0), dt.float32)))
    assert_same_outcome(pair, [rows(0, 2), value])
    assert isinstance(outcome(pair[0].function, rows(0, 2), value), tuple) != (low <= value <= high)


def test_a_launch_may_have_more_work_than_int64_counts() -> None:
    n = B.variable("n", 1, 1 << 30)
    i, j, k = (B.expand(B.reshape(p(0, n), s), (n, n, n)) for s in ((n, 1, 1), (1, n, 1), (1, 1, n)))
    program = compile(B.reduce(B.add(B.mul(i, j), k), Op.MAX, (0, 1, 2)), TARGET, Config(reuse=False, entry="native"))
    assert program.function(np.array([1, 2], np.float32), 2).ravel().tolist() == [6.0]


@pytest.mark.parametrize("at", range(19))
def test_a_bool_byte_is_0_or_1_wherever_it_is(at: int) -> None:
    data = np.zeros(19, np.uint8)
    data[at] = 2 if at % 2 else 0x80
    for program in both(B.not_(p(0, 19, d=dt.bool_))):
        with pytest.raises(Trap, match="R24"):
            program.function(data.view(np.bool_))


def test_memory_that_is_not_given_is_zeros_and_stays_so() -> None:
    a = B.buffer(4, dt.int32, unique=2)
    for program in both(B.sink(B.store(a, B.add(a, 1)))):
        assert (program.keys, program.written_keys) == (("b2",), ("b2",))
        for _ in range(3):
            assert program.function()[0].tolist() == program.function(None)[0].tolist() == [1, 1, 1, 1]
        given = np.array([5, 6, 7, 8], np.int32)
        assert program.function(given)[0].tolist() == [6, 7, 8, 9]
        assert given.tolist() == [5, 6, 7, 8]


def test_results_are_memory_of_their_own() -> None:
    """Small ones are NumPy's, large ones blocks that come back only when nobody has them."""
    for n in (16, module.OWN_BLOCK):
        program, _ = both(B.add(p(0, n), 1.0))
        x = rows(0, n)
        found = [program.function(x) for _ in range(8)]
        for a in found:
            a += 1
        assert all(np.array_equal(a, x + 1 + 1) for a in found)
        views = [a[1:5] for a in found]
        expected = [v.copy() for v in views]
        del found, a
        for _ in range(8):
            program.function(x)
        assert all(map(np.array_equal, views, expected))


def test_large_results_begin_where_a_cache_line_does() -> None:
    program, _ = both(B.add(p(0, module.OWN_BLOCK), 1.0))
    x = rows(0, module.OWN_BLOCK)
    assert all(a.ctypes.data % 64 == 0 for a in [program.function(x) for _ in range(20)])


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


CALLS: dict[str, tuple[str, list[Any], int]] = {
    "right": ("three ops", [rows(0, 16), rows(1, 16)], 100_000),
    "two values": ("two values", [rows(0, 2, 3)], 30_000),
    "written": ("memory that is written", [rows(0, 5), rows(1, 5)], 30_000),
    "in blocks": ("large intermediates", [rows(0, 90, 90)], 3_000),
    "converted": ("three ops", [rows(0, 32)[::2], rows(1, 16)], 3_000),
    "refused": ("three ops", [rows(0, 15), rows(1, 16)], 3_000),
    "out of bounds": ("a variable", [np.arange(4), 1 << 80], 3_000),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_leave_nothing_behind(name: str) -> None:
    program, arguments, count = CALLS[name]
    call = both(PROGRAMS[program][0]())[0].function

    def many(n: int) -> None:
        for _ in range(n):
            outcome(call, *arguments)

    many(500)
    gc.collect()
    objects = [*arguments, *(a.dtype for a in arguments if isinstance(a, np.ndarray)), call.__self__[1]]
    references, blocks, before = [sys.getrefcount(o) for o in objects], sys.getallocatedblocks(), resident()
    many(count)
    gc.collect()
    assert [sys.getrefcount(o) for o in objects] == references
    assert abs(sys.getallocatedblocks() - blocks) < 200
    assert resident() - before < 4 << 20


def test_a_program_that_nobody_has_goes_and_a_function_keeps_what_it_needs() -> None:
    import weakref

    program, _ = both(B.add(p(0, 4), 41.0))
    gone, call = weakref.ref(program), program.function
    del program
    gc.collect()
    assert call(np.zeros(4, np.float32)).tolist() == [41.0] * 4
    assert call(np.zeros(8, np.float32)[::2]).tolist() == [41.0] * 4
    del call, _
    gc.collect()
    assert gone() is None


def test_several_threads_may_call_one_program() -> None:
    """One long enough to release the interpreter's lock, and one that is not."""
    for n, turns in ((16, 2000), (40_000, 60)):
        program, _ = both(B.sub(B.mul(p(0, n), 2.0), B.contiguous(B.flip(p(0, n), (True,)))))
        wrong: list[int] = []

        def work(k: int, n: int = n, turns: int = turns, call: Any = program.function, wrong: list[int] = wrong) -> None:
            x = np.arange(n, dtype=np.float32) + k
            expected = x * 2 - x[::-1]
            for _ in range(turns):
                if not np.array_equal(call(x), expected):
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert wrong == []


def test_shapes_that_depend_on_variables_take_the_general_way() -> None:
    n = B.variable("n", 1, 6)
    graph = B.add(B.param(0, (n,), dt.float32), 1.0)
    program = compile(graph, TARGET, Config(verify=True, reuse=False))
    assert not isinstance(program.function, types.BuiltinFunctionType)
    assert program.keys == ("p0", "n")
    assert program.function(np.zeros(4, np.float32), 4).tolist() == [1.0] * 4
    with pytest.raises(SpecError, match=r"of shape \(3,\), got float32 of shape \(4,\)"):
        program.function(np.zeros(4, np.float32), 3)


DTYPES = ["float32", "float64", "int32", "bool", ">f4", "uint8", "float16"]
ARRAYS = st.builds(
    lambda shape, dtype, order, how: _array(shape, dtype, order, how),
    st.lists(st.integers(0, 4), max_size=4).map(tuple) | st.just((2, 3)) | st.just((3, 2)),
    st.sampled_from(DTYPES) | st.just("float32"),
    st.sampled_from("CF"),
    st.sampled_from(["plain", "sub", "stepped", "flipped", "read-only", "odd", "list", "expanded"]),
)


def _array(shape: tuple[int, ...], dtype: str, order: str, how: str) -> Any:
    size = int(np.prod(shape))
    a = np.array(np.arange(size) % 5, dtype).reshape(shape, order=order)  # type: ignore[call-overload]
    if how == "sub":
        return a.view(Sub)
    if how == "stepped" and shape:
        return np.repeat(a, 2, 0)[::2]
    if how == "flipped" and shape:
        return a[::-1]
    if how == "read-only":
        a.flags.writeable = False
    if how == "odd":
        return np.frombuffer(b"x" + a.tobytes() + b"y", a.dtype, size, 1).reshape(shape)
    if how == "list":
        return a.tolist()
    if how == "expanded":
        return np.broadcast_to(a, (2, *a.shape))
    return a


FUZZED = both(B.tuple_(B.add(p(0, 2, 3), B.permute(p(1, 3, 2), (1, 0))), B.cast(variable(), dt.int64)))


@settings(max_examples=400, deadline=None)
@given(st.lists(ARRAYS | st.integers(-5, 12) | st.none() | st.floats() | st.text(max_size=2), max_size=4))
def test_both_ways_agree_on_any_arguments(arguments: list[Any]) -> None:
    assert_same_outcome(FUZZED, arguments)


@settings(max_examples=150, deadline=None)
@given(ARRAYS, ARRAYS, st.integers(-3, 9))
def test_both_ways_agree_on_arguments_of_the_right_kinds(a: Any, b: Any, n: int) -> None:
    assert_same_outcome(FUZZED, [a, b, n])


FALLBACK = """
import numpy as np, uops
from uops.spec.ir import build as B, dtypes as dt
program = uops.compile(B.add(B.param(0, (4,), dt.float32), 1.0))
assert type(program.function).__name__ == "method", program.function
assert program.function(np.zeros(4, np.float32)).tolist() == [1.0] * 4
assert program({"p0": np.zeros(4, np.float32)}).values[0].tolist() == [1.0] * 4
"""


def test_the_environment_chooses_the_way() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1]), "UOPS_ENTRY": "ctypes"}
    subprocess.run([sys.executable, "-c", FALLBACK], env=environment, check=True)
    with pytest.raises(SpecError, match="UOPS_ENTRY must be one of native, ctypes, got 'fast'"):
        Config.from_environment({"UOPS_ENTRY": "fast"})


def test_where_objects_look_otherwise_there_is_no_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "load_or_compile_native_module", lambda store: None)
    program = compile(B.add(p(0, 4), 1.0), TARGET, Config(reuse=False))
    assert program.function(np.zeros(4, np.float32)).tolist() == [1.0] * 4
    assert not isinstance(program.function, types.BuiltinFunctionType)


def test_an_array_whose_fields_are_elsewhere_is_noticed() -> None:
    assert all(map(table._has_expected_layout, table._make_probe_arrays()))

    class Lies:
        flags, ndim, shape, dtype = np.zeros(3).flags, 2, (3,), np.dtype("f8")
        __array_interface__ = np.zeros(3).__array_interface__

    assert not table._has_expected_layout(Lies())


def test_the_module_refers_to_nothing_but_what_it_says() -> None:
    host = binding.detect_host_without_gfni()
    text = module.render_entry_module(host.triple)
    with pytest.raises(CompileError, match="Py_DecRef"):
        binding.compile_object(text, host, LlvmTier.FAST, module.SYMBOLS - {"Py_DecRef"})
    image = binding.compile_object(text, host, LlvmTier.FAST, module.SYMBOLS)
    from uops.backends.elf import undefined_symbols

    assert set(undefined_symbols(image)) - {"_GLOBAL_OFFSET_TABLE_"} == set(module.SYMBOLS)


def test_the_public_backend_enters_natively() -> None:
    assert isinstance(registry.create_backend("llvm").target.enter, Callable)  # type: ignore[attr-defined]
    program = uops.compile(B.add(p(0, 4), 2.0))
    assert isinstance(program.function, types.BuiltinFunctionType)  # type: ignore[attr-defined]
