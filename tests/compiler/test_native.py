"""The registry of native code: templates, instructions, functions, and what a Program says of its target."""

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from uops.compiler import native
from uops.compiler.host_functions import decode_zlib_stream
from uops.compiler.ir.views import IndexArithmetic
from uops.compiler.native import register_or_withdraw_instruction, registry_version, require_variables_within_program_bounds
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.errors import CompileError, Crash, SpecError, Trap, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BinaryArg, SourceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

NEG = UOp(Op.INS, (b.const(1.0, dt.float32),), A.InsArg("vneg", dt.float32))


@pytest.fixture
def vneg() -> Iterator[None]:
    native.register_or_withdraw_instruction("toy", "vneg", (dt.float32,), dt.float32, "-{0}")
    yield
    native.register_or_withdraw_instruction("toy", "vneg", (dt.float32,), dt.float32, None)


def test_a_template_names_operands_and_doubles_other_braces() -> None:
    assert native.render_template("({{ f({1}, {0}, {1}); }})", ["x", "y{0}"]) == "({ f(y{0}, x, y{0}); })"
    for wrong in ("{2}", "{x}", "{", "a}", "{0"):
        with pytest.raises(SpecError, match="expected"):
            native.render_template(wrong, ["x", "y"])


def test_an_instruction_is_known_by_target_and_dtypes(vneg: None) -> None:
    assert native.find_template_of_ins_or_custom("toy", NEG) == "-{0}"
    with pytest.raises(Unsupported, match=r"INS vneg of \(float32\) to float32: it is registered for no dtypes"):
        native.find_template_of_ins_or_custom("other", NEG)
    with pytest.raises(Unsupported, match=r"of \(float32\) to int32: it is registered for \(float32\) to float32"):
        native.find_template_of_ins_or_custom("toy", NEG.replace(arg=A.InsArg("vneg", dt.int32)))


def test_a_template_that_names_no_operand_is_not_registered() -> None:
    with pytest.raises(SpecError, match="expected"):
        native.register_or_withdraw_instruction("toy", "vneg", (dt.float32,), dt.float32, "-{1}")


def test_a_function_of_a_target_goes_before_one_of_every_target() -> None:
    def common(out: object) -> None: ...

    def special(out: object) -> None: ...

    before = native.registry_version()
    native.register_function("f", common)
    native.register_function("f", special, "toy")
    assert (native.find_function("toy", "f"), native.find_function("other", "f")) == (special, common)
    native.register_function("f", None)
    native.register_function("f", None, "toy")
    assert native.registry_version() == before + 4
    with pytest.raises(Unsupported, match=r"CustomFunction f: it is not registered .*; registered are EncDec, crc32, sort"):
        native.find_function("toy", "f")


def test_only_a_kernel_with_native_text_is_to_blame_for_what_its_compiler_rejects() -> None:
    with pytest.raises(CompileError, match=r"toy rejects a kernel with native text, .*vneg.*: syntax"), native.blame_native_text(
        UOp(Op.LINEAR, (NEG,)), "toy"
    ):  # fmt: skip
        raise Crash("syntax")
    with pytest.raises(Crash), native.blame_native_text(UOp(Op.LINEAR), "toy"):
        raise Crash("syntax")


@pytest.mark.parametrize(("target", "got"), [("", "for a target that it does not name"), ("toy old", "for the target 'toy old'")])
def test_a_program_of_another_target_is_refused(target: str, got: str) -> None:
    program = UOp(Op.PROGRAM, (UOp(Op.LINEAR), UOp(Op.SOURCE, (), A.SourceArg("k", target)), b.binary(b"k")))
    launch = UOp(Op.LINEAR, (b.call(program),))
    with pytest.raises(CompileError, match=f"compiled {got}, expected 'toy key'; compile it again"):
        native.require_programs_and_functions_for_target(launch, "toy", "key")


def test_the_functions_of_every_host_write_their_first_argument() -> None:
    out = np.zeros(3, np.int32)
    native.find_function("toy", "sort")(out, np.array([3, 1, 2], np.int32))
    assert out.tolist() == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 4])
def test_a_stream_without_its_checksum_is_a_trap(cut):
    data = np.arange(16, dtype=np.uint8)
    encoded = np.frombuffer(zlib.compress(data.tobytes())[:-cut], np.uint8)
    with pytest.raises(Trap, match="another length"):
        decode_zlib_stream(np.zeros(16, np.uint8), encoded)


def test_withdrawing_an_instruction_changes_the_version():
    register_or_withdraw_instruction("nowhere", "half", (dt.uint32,), dt.uint32, "({0} / 2)")
    version = registry_version()
    register_or_withdraw_instruction("nowhere", "half", (dt.uint32,), dt.uint32, None)
    assert registry_version() != version


@pytest.mark.parametrize(("lo", "hi", "fits"), [(1, 4, True), (2, 3, True), (1, 5, False), (0, 4, False)])
def test_the_variables_of_a_program_lie_within_its_bounds(lo, hi, fits):
    inner = b.variable("n", 1, 4, slot=0)
    linear = UOp(Op.LINEAR, (inner,))
    program = UOp(Op.PROGRAM, (linear, UOp(Op.SOURCE, (), SourceArg("", "t")), UOp(Op.BINARY, (), BinaryArg(b""))))
    call = b.call(program, b.variable("n", lo, hi))
    if fits:
        require_variables_within_program_bounds(call, call)
    else:
        with pytest.raises(CompileError, match="argument 0 needs a variable within"):
            require_variables_within_program_bounds(call, call)


def test_a_uint64_index_is_compared_before_it_is_reduced():
    arith = IndexArithmetic(Rewriter(INDEXING))
    position = b.load(b.at(b.param(0, (1,), dt.uint64), 0))
    _, inside = arith.index_on_axis_and_in_range_gate(position, 4)
    assert inside is not None and inside.op is Op.CMPLT and inside.lhs is position
