"""The text format: round trip by identity, and errors with line and column on hostile text."""

from __future__ import annotations

import math
import pickle
import random
import struct
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uops.spec.errors import SpecError
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.fields import FIELDS
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import MAX_DEPTH, parse, parse_file, show


def _sample(hint: object) -> object:
    """A value of a field's type that is not its default."""
    fixed: dict[object, object] = {
        int: 7, int | None: 3, bool: True, str: 'a "quoted"\n;name', str | None: "x", bytes: b"\x00\xff", A.Device: ("A", "B"),
        A.Device | None: "GPU:1", A.AddrSpace: A.AddrSpace.LOCAL, A.AddrSpace | None: A.AddrSpace.REG, Op: Op.MUL,
        AxisType: AxisType.GROUP_REDUCE, type(dt.int8): dt.bfloat16, tuple[int, ...]: (2, 0), tuple[int, ...] | None: (1,),
        tuple[bool, ...]: (True, False), tuple[str, ...]: ("a", ""), tuple[int, int]: (3, 4), tuple[int, int] | None: (-1, 9),
        tuple[int, int, int]: (16, 8, 4), tuple[tuple[int, int], ...]: ((0, 4), (1, 2)), bool | int | float: 1.5,
        tuple[A.ConstArg, ...]: (A.ConstArg(1.0, dt.bfloat16), A.ConstArg(-0.0, dt.bfloat16)),
    }  # fmt: skip
    return fixed[hint]


@pytest.mark.parametrize("op", Op)
def test_every_op_round_trips_with_every_field_set(op: Op) -> None:
    kind = A.ARG_TYPE.get(op)
    arg = kind(**{f.name: _sample(f.hint) for f in FIELDS[kind]}) if kind else None
    leaf = b.const(1, dt.int32)
    for src in ((), (leaf,), (leaf, leaf, b.index(4), b.shape_vector((2, 3)))):
        u = UOp(op, src, arg)
        if kind and op is not Op.CONST:
            assert parse(show(u)) is u
            if op in A.ARG_OPTIONAL:
                assert parse(show(UOp(op, src))) is UOp(op, src)
        elif not src or op is not Op.CONST:
            assert parse(show(u)) is u


def test_a_default_arg_is_told_from_no_arg() -> None:
    for op in sorted(A.ARG_OPTIONAL - {Op.SINK}, key=lambda o: o.name):
        a, n = UOp(op, (), A.CallArg()), UOp(op)
        assert a is not n and parse(show(a)) is a and parse(show(n)) is n


FLOATS = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1]


@pytest.mark.parametrize(
    "bits", [struct.unpack("<Q", struct.pack("<d", v))[0] for v in FLOATS] + [0x7FF8000000000001, 0xFFF0000000000123]
)
def test_constants_round_trip_by_bits(bits: int) -> None:
    v = struct.unpack("<d", struct.pack("<Q", bits))[0]
    u = UOp(Op.CONST, (), A.ConstArg(v, dt.float64))
    back = parse(show(u))
    assert back is u
    assert struct.pack("<d", back.arg.value) == struct.pack("<d", v)


def test_zero_and_minus_zero_are_two_constants() -> None:
    """R23"""
    assert b.const(0.0) is not b.const(-0.0)
    assert b.const(math.nan) is b.const(math.nan)
    assert b.const(True) is not UOp(Op.CONST, (), A.ConstArg(1, dt.bool_))


@given(st.integers(-(10**900), 10**900), st.sampled_from([None, "t", 3, ("a", 1, None)]))
def test_big_integers_and_tags_round_trip(v: int, tag: object) -> None:
    u = UOp(Op.NEG, (b.index(v),), None, tag)
    assert parse(show(u)) is u


def test_operands_of_one_graph_share_names() -> None:
    x = b.param(0, (2, 3), dt.float32)
    g = b.add(b.mul(x, x), b.permute(b.reshape(x, (3, 2)), (1, 0)))
    text = show(g, types=True)
    assert parse(text) is g
    assert text.count("param") == 1
    assert "reshape %0, (3, 2)" in text


def test_a_node_crosses_processes_as_text() -> None:
    g = b.add(b.param(0, (4,), dt.bfloat16), 1)
    assert pickle.loads(pickle.dumps(g)) is g


def test_deep_graphs_round_trip() -> None:
    g = b.const(1.0)
    for _ in range(100_000):
        g = UOp(Op.NEG, (g,))
    assert parse(show(g)) is g


BAD = {
    "": (1, 1), "; only a comment\n": (1, 1), "%0 = foo": (1, 6), "%0 = add %1": (1, 10), "%0 = add %0, %0": (1, 10),
    "%0 = const 1": (1, 6), "%0 = const 1 : f99": (1, 16), "%0 = const 1 2 : f32": (1, 14), "%0 = const 1, 2 : f32": (1, 15),
    "\n%0 = const 1 : f32\n%0 = const 2 : f32": (3, 1), "@": (1, 1), "%0 = stack ((1))": (1, 13), "%0 = neg %": (1, 10),
    "%0 = stack 1.5": (1, 12), "%0 = stack [1]": (1, 12), "%0 = permute 1, order=[1, x]": (1, 17), "%0 = permute 1, order=[": (1,
    24), "%0 = neg 1, order=[1]": (1, 13), "%0 = permute 1, order=[1], order=[1]": (1, 28), "%0 = permute 1, size=1": (1, 17),
    '%0 = special name="a': (1, 19), "%0 = binary data=0x1": (1, 18), "%0 = const " + "9" * 1235 + " : index": (1, 12),
    "%0 = permute order=" + "[" * 2000: (1, 20 + MAX_DEPTH), "%0 = const 1 : f32 extra": (1, 20), "%0 : add": (1, 4), "add": (1, 1),
    '%0 = special 1, name="\\ud800" : index': (1, 22), "%0 = cast 1 : 5": (1, 15), "%0 = neg 1, tag=1, tag=2": (1, 20),
    "%0 = neg 1, tag=none, tag=5": (1, 23), "%0 = const 1, dtype=i32 : f32": (1, 27), "%0 = neg 1, tag=[1, nan]": (1, 13),
    "%0 = const nan:0x3ff0000000000000 : f64": (1, 12), "%0 = const nan:0xfff0000000000000 : f64": (1, 12),
}  # fmt: skip


@pytest.mark.parametrize(("text", "where"), BAD.items())
def test_bad_text_names_line_and_column(text: str, where: tuple[int, int]) -> None:
    with pytest.raises(SpecError) as e:
        parse(text)
    assert (e.value.line, e.value.column) == where


def _only_spec_error(text: str) -> None:
    try:
        parse(text)
    except SpecError as e:
        assert e.line is not None and e.column is not None and e.line >= 1 and e.column >= 1


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_spec_error(text: str) -> None:
    _only_spec_error(text)


@given(st.binary(max_size=300))
def test_any_bytes_parse_or_are_a_spec_error(data: bytes) -> None:
    _only_spec_error(data.decode("latin-1"))


def test_mutated_text_parses_or_is_a_spec_error() -> None:
    rng = random.Random(7)
    x = b.param(0, (2, 3), dt.float32)
    base = show(b.store(b.buffer(6, dt.float32, unique=1), b.reshape(b.add(b.cast(x, dt.float32), b.const(1.5)), (6,))))
    for _ in range(5000):
        text = list(base)
        for _ in range(rng.randint(1, 4)):
            k = rng.randrange(len(text))
            text[k : k + rng.randint(0, 3)] = rng.choice(
                ["", "%", "(", "[", ")", "=", ":", ",", "9", "nan", "0x", '"', ";", "\n", "\x00", "é"]
            )
        _only_spec_error("".join(text))


HOSTILE = [
    "%0 = permute order=" + "[" * 200_000,
    "%0 = stack " + "(" * 200_000,
    "%0 = const " + "9" * 400_000 + " : index",
    "%0 = const 1e" + "9" * 400_000 + " : f64",
    "%0 = neg " + ", ".join(["1"] * 50_000),
    "\n".join(f"%{k} = add %{max(k - 1, 0)}, %{max(k - 1, 0)}" for k in range(20_000)),
    "%0 = const 1 : f32\n" + "\n".join(f"%{k + 1} = add %{k}, %{k}" for k in range(20_000)),
    '%0 = special name="' + "\\u0041" * 60_000 + '"',
    "%0 = binary data=0x" + "00" * 200_000,
    "%" * 400_000,
    "x" * 400_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_bounded_time_and_memory(text: str) -> None:
    """Time and memory are bounded by a generous multiple of the text's length."""
    tracemalloc.start()
    start = time.process_time()
    try:
        _only_spec_error(text)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1000 * len(text) + 10_000_000
    assert time.process_time() - start < 20


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(SpecError, match="is a device"):
        parse_file("/dev/zero")


def test_a_file_error_names_the_file(tmp_path: object) -> None:
    path = f"{tmp_path}/bad.uops"
    with open(path, "wb") as f:
        f.write(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"bad\.uops:1 is not UTF-8"):
        parse_file(path)
