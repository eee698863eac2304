"""Compiled programs as callables: what they check, what they leave alone, and the cache of programs."""

import re
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.compiler import Config, compile
from uops.compiler.runtime.arguments import BufferOrigin, BufferSlot
from uops.spec.errors import CompileError, SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

FRESH = Config(verify=True, reuse=False)
X = b.param(0, (2, 3), dt.float32)
DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'p0' is missing: it needs float32 of shape \\(2, 3\\)"),
        ({"p0": DATA.astype(np.float64)}, "input 'p0' needs float32 of shape \\(2, 3\\), got float64 of shape \\(2, 3\\)"),
        ({"p0": DATA.reshape(3, 2)}, "got float32 of shape \\(3, 2\\)"),
        ({"p0": DATA, "p1": DATA}, "the graph has no input 'p1'; it has p0"),
    ],
)
def test_a_wrong_input_is_named_with_what_was_expected_and_got(pyref: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        compile(b.add(X, 1.0), pyref, FRESH)(inputs)


@pytest.mark.parametrize("inputs", [[DATA], DATA], ids=["list", "array"])
def test_inputs_are_a_mapping(pyref: Any, inputs: Any) -> None:
    with pytest.raises(SpecError, match=r"expected a mapping of inputs by key \(p0\), got"):
        compile(b.add(X, 1.0), pyref, FRESH)(inputs)


def test_a_variable_is_an_int_within_its_bounds(pyref: Any) -> None:
    n = b.variable("n", 1, 4)
    program = compile(b.add(b.param(0, (n,), dt.float32), 1.0), pyref, FRESH)
    assert program({"p0": np.zeros(2, np.float32), "n": np.int64(2)}).values[0].tolist() == [1.0, 1.0]
    for value in (0, 5):
        with pytest.raises(Trap, match=f"variable n = {value} is outside of its bounds \\[1, 4\\] \\(R48\\)"):
            program({"p0": np.zeros(value, np.float32), "n": value})
    for wrong in (1.5, 1.0, True, "1", [[1]], np.array([1]), np.float32(1), np.True_, np.array(True, object)):
        with pytest.raises(SpecError, match=f"input 'n' needs an int, got {re.escape(repr(wrong))}"):
            program({"p0": np.zeros(1, np.float32), "n": wrong})
    for ragged in ({"n": [1, [2, 3]]}, {"n": 1, "p0": [[1.0], [2.0, 3.0]]}):
        with pytest.raises(SpecError, match=r"input '(n|p0)' is no array"):
            program({"p0": np.zeros(1, np.float32), **ragged})
    with pytest.raises(SpecError, match="of shape \\(3,\\), got float32 of shape \\(2,\\)"):
        program({"p0": np.zeros(2, np.float32), "n": 3})


def test_a_bool_byte_is_0_or_1(pyref: Any) -> None:
    program = compile(b.not_(b.param(0, (2,), dt.bool_)), pyref, FRESH)
    with pytest.raises(Trap, match="R24"):
        program({"p0": np.array([1, 2], np.uint8).view(np.bool_)})


def test_inputs_are_not_changed_and_buffers_come_back(pyref: Any) -> None:
    a = b.buffer(3, dt.float32, unique=4)
    program = compile(b.sink(b.store(a, b.add(a, 1.0))), pyref, FRESH)
    given = np.array([1, 2, 3], np.float32)
    found = program({"b4": given})
    assert found.values == ()
    assert found.buffers["b4"].tolist() == [2.0, 3.0, 4.0]
    assert given.tolist() == [1.0, 2.0, 3.0]
    assert program({}).buffers["b4"].tolist() == [1.0, 1.0, 1.0]


def test_a_written_param_is_reported_and_the_callers_array_kept(pyref: Any) -> None:
    given = DATA.copy()
    found = compile(b.sink(b.store(X, b.neg(X))), pyref, FRESH)({"p0": given})
    assert found.buffers["p0"].tolist() == (-DATA).tolist()
    assert given.tolist() == DATA.tolist()


def test_arrays_of_any_stride_are_taken(pyref: Any) -> None:
    program = compile(b.add(X, 1.0), pyref, FRESH)
    wide = np.zeros((3, 4), np.float32)
    wide[:, ::2] = DATA.T
    assert program({"p0": wide[:, ::2].T}).values[0].tolist() == (DATA + 1).tolist()


def test_an_array_between_the_words_of_memory_is_copied_to_one() -> None:
    odd = np.zeros(DATA.nbytes + 1, np.uint8)[1:].view(DATA.dtype).reshape(DATA.shape)
    odd[...] = DATA
    taken = BufferSlot.for_memory(X, BufferOrigin.GIVEN, X.shape, is_written=False, is_index=False).prepare_array({"p0": odd}, {})
    assert not odd.flags.aligned and taken.flags.aligned and taken.tolist() == DATA.tolist()


def test_storage_dtypes_of_small_floats_and_index(pyref: Any) -> None:
    x = b.param(0, (2,), dt.bfloat16)
    (value,) = compile(b.add(x, x), pyref, FRESH)({"p0": np.array([1, 3], ml_dtypes.bfloat16)}).values
    assert value.dtype == ml_dtypes.bfloat16
    assert value.tolist() == [2.0, 6.0]
    i = compile(b.maximum(b.param(0, (2,), dt.index), 0), pyref, FRESH)
    (value,) = i({"p0": np.array([-1, 7], object)}).values
    assert (value.dtype, value.tolist()) == (np.int64, [0, 7])
    with pytest.raises(CompileError, match="int64 does not hold \\(R08\\)"):
        i({"p0": np.array([2**70, 0], object)})
    for other in (1.7, "7", None):
        with pytest.raises(SpecError, match=f"needs int64, got an array of objects with a {type(other).__name__}"):
            i({"p0": np.array([other, True], object)})


@pytest.mark.parametrize(("dtype", "data"), [(dt.int64, np.array([1, 2], object)), (dt.float32, [1, 2**64])])
def test_python_integers_are_no_values_of_another_dtype_than_index(pyref: Any, dtype: DType, data: Any) -> None:
    program = compile(b.neg(b.param(0, (2,), dtype)), pyref, FRESH)
    with pytest.raises(SpecError, match=f"needs {dtype.name} of shape \\(2,\\), got object of shape \\(2,\\)"):
        program({"p0": data})


def test_a_graph_is_compiled_once_per_target_and_settings(pyref: Any) -> None:
    graph = b.add(X, 41.0)
    program = compile(graph, pyref, Config())
    assert compile(b.add(X, 41.0), pyref, Config()) is program
    assert compile(graph, pyref, Config(verify=True)) is not program
    assert compile(graph, pyref, FRESH) is not compile(graph, pyref, FRESH)


def test_a_program_may_run_in_several_threads(pyref: Any) -> None:
    program = compile(b.reduce(b.contiguous(b.mul(X, 2.0)), Op.ADD, (0, 1)), pyref, FRESH)
    found: dict[int, float] = {}

    def work(k: int) -> None:
        found[k] = float(program({"p0": DATA + k}).values[0].item())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: 30.0 + 12 * k for k in range(8)}


def test_the_function_takes_params_then_variables_then_buffers(pyref: Any) -> None:
    """Params by slot, variables by name, Buffers by number, those that the graph fills among them."""
    n, m = b.variable("n", 0, 9), b.variable("m", 0, 9)
    a, own = b.buffer(2, dt.int64, unique=9), b.buffer(2, dt.int64, unique=3)
    x, y = b.param(4, (2,), dt.int64), b.param(1, (2,), dt.int64)
    scaled = b.add(b.mul(x, b.cast(n, dt.int64)), b.mul(y, b.cast(m, dt.int64)))
    value = b.add(b.after(own, b.store(own, scaled)), a)
    program = compile(b.tuple_(value, b.after(a, b.store(a, b.neg(x)))), pyref, FRESH)
    assert program.keys == ("p1", "p4", "m", "n", "b3", "b9")
    assert program.written_keys == ("b3", "b9")
    one, ten = np.array([1, 2]), np.array([10, 20])
    values = program.function(one, ten, 3, 2, None, np.array([100, 100]))
    assert [v.tolist() for v in values] == [[123, 146], [-10, -20], [23, 46], [-10, -20]]
    found = program({"p1": one, "p4": ten, "m": 3, "n": 2, "b9": np.array([100, 100])})
    assert [v.tolist() for v in found.values] == [[123, 146], [-10, -20]]
    assert {k: v.tolist() for k, v in found.buffers.items()} == {"b3": [23, 46], "b9": [-10, -20]}


def test_the_function_of_one_value_gives_an_array_and_of_several_a_tuple(pyref: Any) -> None:
    assert compile(b.add(X, 1.0), pyref, FRESH).function(DATA).tolist() == (DATA + 1).tolist()
    assert isinstance(compile(b.tuple_(b.add(X, 1.0)), pyref, FRESH).function(DATA), np.ndarray)
    two = compile(b.tuple_(b.add(X, 1.0), b.neg(X)), pyref, FRESH).function(DATA)
    assert isinstance(two, tuple) and [v.tolist() for v in two] == [(DATA + 1).tolist(), (-DATA).tolist()]
    assert isinstance(compile(b.sink(b.store(X, b.neg(X))), pyref, FRESH).function(DATA), tuple)


def test_missing_and_superfluous_arguments_are_said(pyref: Any) -> None:
    program = compile(b.add(X, b.param(1, (2, 3), dt.float32)), pyref, FRESH)
    for arguments in ((DATA,), (DATA, None)):
        with pytest.raises(SpecError, match="input 'p1' is missing: it needs float32 of shape \\(2, 3\\)"):
            program.function(*arguments)
    with pytest.raises(SpecError, match="expected 2 arguments \\(p0, p1\\), got 3"):
        program.function(DATA, DATA, DATA)


def test_arrays_of_another_byte_order_and_of_odd_addresses_are_converted(pyref: Any) -> None:
    program = compile(b.add(X, 1.0), pyref, FRESH)
    odd = np.frombuffer(b"x" + DATA.tobytes(), np.float32, 6, 1).reshape(2, 3)
    assert not odd.flags.aligned
    for array in (DATA.astype(">f4"), odd, DATA.view(np.recarray)):
        assert program.function(array).tolist() == (DATA + 1).tolist()


def test_settings_of_calls_are_read_from_the_environment() -> None:
    assert Config.from_environment({}) == Config()
    found = Config.from_environment({"UOPS_ENTRY": "ctypes", "UOPS_THREADS": "3"})
    assert (found.entry, found.threads) == ("ctypes", 3)
    wrong = (
        ("UOPS_ENTRY", "c"),
        ("UOPS_THREADS", "-1"),
        ("UOPS_THREADS", "two"),
        ("UOPS_BEAM_SECONDS", "0"),
        ("UOPS_BEAM", str(2**63)),
    )
    for name, value in wrong:
        with pytest.raises(SpecError, match=f"{name} must be .*, got '{value}'"):
            Config.from_environment({name: value})
    with pytest.raises(SpecError, match=r"UOPS_THREADS must be .*, got 5000 characters"):
        Config.from_environment({"UOPS_THREADS": "9" * 5000})


@pytest.mark.parametrize(
    ("name", "value"),
    [("entry", "foo"), ("threads", -1), ("threads", 1.0), ("beam", True), ("beam_seconds", 0), ("forced", -1), ("forced", 2**63)],
)
def test_a_setting_has_one_of_its_values(name: str, value: Any) -> None:
    with pytest.raises(SpecError, match=f"Config.{name} must be .*, got {value!r}"):
        Config(**{name: value})


def test_the_name_of_a_variable_does_not_act_on_a_terminal(pyref):
    n = b.variable("n\x1b[31m", 0, 3)
    program = compile(b.cast(n, dt.int32), pyref, FRESH)
    for inputs in ({}, {n.arg.name: 9}):
        with pytest.raises((SpecError, Trap)) as refused:
            program(inputs)
        assert "\x1b" not in str(refused.value) and "\\x1b[31m" in str(refused.value)
