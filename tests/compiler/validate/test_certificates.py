"""Certificates hold, and any index, gate or constant that is altered in one makes it fail."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from uops import Tensor
from uops.backends.registry import create_backend
from uops.cli import main
from uops.compiler.config import default_config
from uops.compiler.rewrite.rules.fast_math import LAWS
from uops.compiler.tensor.realize import capture
from uops.compiler.validate import certificate as C
from uops.compiler.validate.decide import decide_by_solver
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, parse_file, show

PROGRAMS = Path(__file__).parents[3] / "examples" / "programs"
#: A text that is altered alone, or those that hold the same bodies together.
TEXTS = (("tensor",), ("callify", "parts"), ("join",), ("widths",), ("decompose",), ("simplify",), ("linearize", "plan"))


def certified(name: str, backend: str = "llvm") -> C.Json:
    return C.certify(parse_file(str(PROGRAMS / f"{name}.uops")), create_backend(backend).target)


def transposed() -> C.Json:
    """The certificate of a kernel that rules simplify."""
    graph = b.contiguous(b.permute(b.param(0, (3, 5), dt.float32), (1, 0)))
    return C.certify(graph, create_backend("llvm").target)


def _put(root: UOp, change: Callable[[UOp, UOp], UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        done[u] = u if u.op is Op.PARAM else change(u, u.replace(src=tuple(done[s] for s in u.src)))
    return done[root]


def alterations(root: UOp) -> Iterator[Callable[[UOp], UOp]]:
    """Each constant that is more, each index that is one more, each gate that is gone."""
    sizes = {u for p in toposort(root) if p.op is Op.PARAM for u in toposort(p)}
    for u in toposort(root):
        if u.op is Op.CONST and any(u in x.src for x in toposort(root) if x not in sizes):
            v = u.arg.value
            other = UOp(Op.CONST, (), replace(u.arg, value=not v if isinstance(v, bool) else v + 1))
            yield lambda r, u=u, other=other: _put(
                r, lambda old, new: new.replace(src=tuple(other if s is u else t for s, t in zip(old.src, new.src)))
            )
        if u.op is Op.INDEX and u.src[0].op in (Op.PARAM, Op.BUFFER, Op.AFTER) and u.src[1].shape == ():
            one = UOp(Op.CONST, (), replace(b.index(1).arg, dtype=u.src[1].dtype))
            yield lambda r, u=u, one=one: _put(
                r, lambda old, new: new.replace(src=(new.src[0], UOp(Op.ADD, (new.src[1], one)))) if old is u else new
            )
        if u.op in (Op.LOAD, Op.STORE) and len(u.src) == 3:
            keep = 2 if u.op is Op.STORE else 1
            yield lambda r, u=u, keep=keep: _put(r, lambda old, new: new.replace(src=new.src[:keep]) if old is u else new)


def forged(made: C.Json, names: tuple[str, ...], alter: Callable[[UOp], UOp]) -> C.Json | None:
    """The certificate with some texts altered, and what it says of its claims made to fit; None where that is no graph, or the
    same."""
    found = copy.deepcopy(made)
    try:
        for name in names:
            found["texts"][name] = show(alter(parse(made["texts"][name])))
        launches = {k: parse(t) for k, t in found["texts"].items()}
        found["program"] = C.digest_program(launches["tensor"])
        found["claims"] = [
            [c.kind.value, c.place, C._digest(C.encode_negated_claim_and_model_defaults(c)[0])]
            for c in C.generate_kernel_call_and_plan_claims(launches, found["callers"])
        ]
    except (UopsError, AssertionError, ValueError):
        return None
    return found if found["texts"] != made["texts"] else None


@pytest.mark.parametrize("name", ["arange", "prefix_sum", "scatter_add"])
def test_a_certificate_holds(name, worker, tmp_path):
    made = certified(name)
    assert made["claims"] and made["trusted"]
    (tmp_path / "c.json").write_text(C.dump_certificate(made))
    assert list(C.check_certificate_and_yield_faults(C.load_certificate_and_check_digest(tmp_path / "c.json"), worker)) == []


@pytest.mark.parametrize("stride", [1, 2])
def test_reads_of_overlapping_windows_under_a_clamp_are_certified(stride, worker):
    """The rows of a filter's gradient are clamped to the last channel, and each pixel lies in several windows."""
    image, filters = (Tensor.from_numpy(np.zeros(n, np.float32)) for n in ((1, 64, 12, 12), (64, 64, 3, 3)))
    value = image.conv2d(filters, padding=1, stride=stride)
    gradients = value.gradient(filters, gradient=Tensor.from_numpy(np.zeros(value.shape, np.float32)))
    made = C.certify(capture(*gradients).graph, create_backend("llvm").target)
    assert list(C.check_certificate_and_yield_faults(made, worker)) == []


@pytest.mark.parametrize(("name", "backend"), [("gemm", "llvm"), ("gather", "c")])
@pytest.mark.parametrize("names", TEXTS)
def test_an_altered_index_gate_or_constant_makes_it_fail(name, backend, names, worker):
    made = certified(name, backend)
    tried = 0
    for alter in alterations(parse(made["texts"][names[-1]])):
        found = forged(made, names, alter)
        if found is not None:
            tried += 1
            assert next(C.check_certificate_and_yield_faults(found, worker), None), found["texts"][names[-1]]
    assert tried >= (5 if names[-1] not in ("tensor", "parts") else 1)


@pytest.mark.parametrize("names", [("tensor",), ("callify", "parts"), ("join", "widths")])
def test_a_step_that_does_not_keep_the_values_is_no_proof(names, worker):
    """What is not proved is in the trusted base, or the certificate fails."""
    made = C.certify(b.mul(b.param(0, (4,), dt.float32), 2.0), create_backend("llvm").target)
    assert made["trusted"] == list(C.TRUSTED)
    for name in names:
        made["texts"][name] = made["texts"][name].replace("mul", "add")
    made["program"] = C.digest_program(parse(made["texts"]["tensor"]))
    assert any("trusted base" in why or "the values of" in why for why in C.check_certificate_and_yield_faults(made, worker))


def test_hints_choose_what_is_compared_and_prove_nothing(worker):
    """A value that two kernels hand over is proved where the hint says so, and otherwise not."""
    x = b.param(0, (64, 64), dt.float32)
    gram = b.sum_and_drop_axis(b.mul(b.reshape(x, (64, 64, 1)), b.reshape(b.permute(x, (1, 0)), (1, 64, 64))), 1)
    made = C.certify(
        b.sum_and_drop_axis(b.mul(b.reshape(gram, (64, 64, 1)), b.reshape(x, (1, 64, 64))), 1), create_backend("llvm").target
    )
    assert made["trusted"] == list(C.TRUSTED) and made["hints"]["held"]
    made["hints"]["held"] = []
    assert any("trusted base" in why for why in C.check_certificate_and_yield_faults(made, worker))


def test_a_certificate_names_its_program(tmp_path):
    out, other = tmp_path / "gemm.json", str(PROGRAMS / "arange.uops")
    out.write_text(C.dump_certificate(certified("gemm")))
    held = CliRunner().invoke(main, ["check-certificate", str(out), "--program", str(PROGRAMS / "gemm.uops")])
    assert held.exit_code == 0 and C.digest_program(parse_file(str(PROGRAMS / "gemm.uops"))) in held.output
    wrong = CliRunner().invoke(main, ["check-certificate", str(out), "--program", other])
    assert wrong.exit_code == 1 and f"it is no certificate of {other}" in wrong.output.replace("\n", "")


#: A kernel that stores to the elements of its loop; `end` is the root of a body, or a list of instructions.
_FILL = """
%0 = param (8), slot=0 : f32
%1 = const 1.0 : f32
%2 = range {n}, axis_id=0, type=loop
%3 = index %0, %2
%4 = store %3, %1
%5 = end %4, %2
%6 = {end}
"""


def _launch(*kernels: UOp) -> UOp:
    """A launch in which each kernel has an argument of its own."""
    return UOp(Op.LINEAR, tuple(b.call(k, b.buffer(8, dt.float32, unique=n), written=(0,)) for n, k in enumerate(kernels, 1)))


@pytest.mark.parametrize("order", [(8, 4), (4, 8)], ids=str)
@pytest.mark.parametrize("side", ["join", "linearize"])
def test_each_pair_of_a_body_and_its_instructions_is_claimed_although_kernels_have_one_of_the_two_in_common(side, order, worker):
    """The kernels of one side fill 8 and 4 elements, those of the other side 8 each."""
    ends = {"join": 'sink %5, name="k"', "linearize": "linear %0, %1, %2, %3, %4, %5"}

    def is_proved(**counts: tuple[int, ...]) -> bool:
        launches = {name: _launch(*(parse(_FILL.format(n=n, end=end)) for n in counts[name])) for name, end in ends.items()}
        claims = C.generate_kernel_call_and_plan_claims({**launches, "plan": launches["linearize"]}, [1, 2])
        return all(decide_by_solver(c, worker).is_proved for c in claims)

    both = {"join": (8, 8), "linearize": (8, 8)}
    assert is_proved(**both) and not is_proved(**{**both, side: order})


def test_a_claim_that_is_left_out_makes_it_fail(worker):
    made = certified("arange")
    made["claims"].pop()
    assert list(C.check_certificate_and_yield_faults(made, worker)) == ["the claims of the texts are not those written down"]


def test_arguments_of_a_call_that_change_places_make_it_fail(worker):
    made = C.certify(b.sub(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32)), create_backend("llvm").target)
    for name in ("linearize", "plan"):
        launch = parse(made["texts"][name])
        (call,) = launch.src
        body, out, x, y = call.src
        made["texts"][name] = show(launch.replace(src=(call.replace(src=(body, out, y, x)),)))
    assert "plan: call 0 keeps its arguments: refuted: always" in list(C.check_certificate_and_yield_faults(made, worker))


def test_a_step_that_is_no_instance_of_its_rule_makes_it_fail(worker):
    made = transposed()
    made["steps"][0][0][2] = show(b.index(7))
    assert any("no instance" in why for why in C.check_certificate_and_yield_faults(made, worker))


def test_a_rule_that_changed_makes_it_fail(worker):
    made = transposed()
    name = next(iter(made["rules"]))
    made["rules"][name] = "0" * 64
    assert f"rule {name} has changed since it was certified" in list(C.check_certificate_and_yield_faults(made, worker))


def test_a_certificate_of_a_fast_math_program_holds_when_it_is_read_again(tmp_path):
    x, zero = b.param(0, (4,), dt.float32), b.const(0.0, dt.float32)
    config = replace(default_config(), fast_math=True)
    made = C.certify(b.add(b.mul(x, zero), b.sub(x, zero)), create_backend("c").target, config)
    assert len(made["fast_math"]) > len(LAWS)
    path = tmp_path / "made.json"
    path.write_text(C.dump_certificate(made))
    assert not C.check_certificate_and_list_faults(C.load_certificate_and_check_digest(path))


def test_the_commands_write_and_check_it_and_name_what_it_rests_on(tmp_path):
    out = tmp_path / "gemm.json"
    run = CliRunner().invoke(
        main, ["compile", str(PROGRAMS / "gemm.uops"), "-b", "llvm", "-s", "linearize", "--certificate", str(out)]
    )
    assert run.exit_code == 0, run.output
    checked = CliRunner().invoke(main, ["check-certificate", str(out)])
    assert checked.exit_code == 0 and all(line in checked.output for line in C.TRUSTED)
    made = json.loads(out.read_text())
    made["texts"]["plan"] = made["texts"]["plan"].replace("range 7", "range 6")
    out.write_text(json.dumps(made))
    assert CliRunner().invoke(main, ["check-certificate", str(out)]).exit_code == 2  # its digest is not that of its contents
    del made["digest"]
    out.write_text(C.dump_certificate(made))
    assert CliRunner().invoke(main, ["check-certificate", str(out)]).exit_code == 1
