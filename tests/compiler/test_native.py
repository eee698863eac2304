"""The registry of native code: templates, instructions, functions, and what a Program says of its target."""

from collections.abc import Iterator

import numpy as np
import pytest

from uops.compiler import native
from uops.spec.errors import CompileError, Crash, SpecError, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

NEG = UOp(Op.INS, (b.const(1.0, dt.float32),), A.InsArg("vneg", dt.float32))


@pytest.fixture
def vneg() -> Iterator[None]:
    native.register_instruction("toy", "vneg", (dt.float32,), dt.float32, "-{0}")
    yield
    native.register_instruction("toy", "vneg", (dt.float32,), dt.float32, None)


def test_a_template_names_operands_and_doubles_other_braces() -> None:
    assert native.render_template("({{ f({1}, {0}, {1}); }})", ["x", "y{0}"]) == "({ f(y{0}, x, y{0}); })"
    for wrong in ("{2}", "{x}", "{", "a}", "{0"):
        with pytest.raises(SpecError, match="expected"):
            native.render_template(wrong, ["x", "y"])


def test_an_instruction_is_known_by_target_and_dtypes(vneg: None) -> None:
    assert native.template_of_instruction("toy", NEG) == "-{0}"
    with pytest.raises(Unsupported, match=r"INS vneg of \(float32\) to float32: it is registered for no dtypes"):
        native.template_of_instruction("other", NEG)
    with pytest.raises(Unsupported, match=r"of \(float32\) to int32: it is registered for \(float32\) to float32"):
        native.template_of_instruction("toy", NEG.replace(arg=A.InsArg("vneg", dt.int32)))


def test_a_template_that_names_no_operand_is_not_registered() -> None:
    with pytest.raises(SpecError, match="expected"):
        native.register_instruction("toy", "vneg", (dt.float32,), dt.float32, "-{1}")


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
        native.require_bodies_of_target(launch, "toy", "key")


def test_the_functions_of_every_host_write_their_first_argument() -> None:
    out = np.zeros(3, np.int32)
    native.find_function("toy", "sort")(out, np.array([3, 1, 2], np.int32))
    assert out.tolist() == [1, 2, 3]
