"""Native code in a text is found where it stands, whether the root needs it or not."""

import pytest

from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.native import NativeTextError, is_native, refuse_native_text
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, parse_and_locate_nodes, show

LINEAR = UOp(Op.LINEAR)
SOURCE = UOp(Op.SOURCE, (), A.SourceArg("k"))
SINK, DEVICE = b.sink(), UOp(Op.DEVICE, (), A.DeviceArg("CPU"))
NATIVE = {
    "custom": UOp(Op.CUSTOM, (), A.CustomArg("f();", dt.void)),
    "customi": UOp(Op.CUSTOMI, (), A.CustomArg("f()", dt.int32)),
    "ins": UOp(Op.INS, (), A.InsArg("nop", dt.void)),
    "custom_function": UOp(Op.CUSTOM_FUNCTION, (), A.NameArg("sort")),
    "program": UOp(Op.PROGRAM, (LINEAR, SOURCE, b.binary(b"k"))),
    "b_program": UOp(Op.B_PROGRAM, (SINK, DEVICE, UOp(Op.PROGRAM_BINARY, (), A.BinaryArg(b"k")))),
}


@pytest.mark.parametrize("name", NATIVE)
def test_the_first_native_node_is_named_with_its_line(name: str) -> None:
    text = "; a comment\n\n" + show(NATIVE[name])
    graph = parse_and_locate_nodes(text)
    line = text.rstrip().count("\n") + 1
    with pytest.raises(NativeTextError, match=rf"^here: line {line}: %\d+ is native code \({name}.*; allow it$") as e:
        refuse_native_text(graph, "here: ", "allow it")
    assert e.value.line == line


HARMLESS = [SOURCE, b.binary(b"data"), LINEAR, UOp(Op.B_PROGRAM, (SINK, DEVICE)), b.const(1)]


@pytest.mark.parametrize("u", HARMLESS, ids=lambda u: u.op.name)
def test_what_runs_nothing_foreign_is_not_native(u: UOp) -> None:
    assert not is_native(u)
    refuse_native_text(parse_and_locate_nodes(show(u)), "", "")


def test_a_node_that_the_root_does_not_need_counts() -> None:
    text = '%0 = custom fmt="system(0);" : void\n%1 = const 1 : i32\n'
    assert parse(text) is b.const(1, dt.int32)
    with pytest.raises(NativeTextError, match=r"line 1: %0 is native code \(custom system\(0\);\)"):
        refuse_native_text(parse_and_locate_nodes(text), "", "")


def test_a_node_on_two_lines_is_at_the_first() -> None:
    graph = parse_and_locate_nodes("%a = const 1 : i32\n%b = const 1 : i32\n")
    assert graph.places[graph.root] == (1, "%a")
