"""Fast-math: off unless asked for; on, a program that is the same over the reals, compiled as strictly as any other."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import uops
from uops import Tensor
from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.stage_judge import find_value_outside_allowed_set
from uops.backends.registry import create_backend
from uops.cli import main
from uops.compiler.config import Config, reload_default_config
from uops.compiler.log import LoweringLog, record_transforms
from uops.compiler.passes.callify.callify import callify, inline_calls_and_drop_gradient_markers
from uops.compiler.passes.callify.relax import apply_fast_math_if_order_kept
from uops.compiler.pipeline import record_lowering_up_to_plan, stages
from uops.compiler.runtime import program as runtime
from uops.compiler.validate import certificate as C
from uops.compiler.validate.launch import validate
from uops.spec.errors import Unsupported, UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import ranges_closed_by
from uops.spec.ir.text import parse_file
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

ROOT = Path(__file__).parents[4]
CORPUS = sorted([*(ROOT / "tests/corpus").glob("*.uops"), *(ROOT / "examples/programs").glob("*.uops")])
FAST = Config(fast_math=True, verify=True)


def matrix(slot: int, *shape: int, dtype: dt.DType = dt.float32) -> UOp:
    return b.param(slot, shape, dtype)


def third(x: UOp) -> UOp:
    return b.build_alu_with_promotion(Op.DIV, x, 3.0)


def softmax(x: UOp) -> UOp:
    e = b.build_alu_with_promotion(Op.EXP2, x)
    return b.build_alu_with_promotion(Op.DIV, e, b.reduce(e, Op.ADD, (1,)))


def product(x: UOp, y: UOp) -> UOp:
    """(n, k) by (k, m)."""
    (n, k), (_, m) = x.shape, y.shape
    return b.reshape(b.reduce(b.mul(b.reshape(x, (n, k, 1)), b.reshape(y, (1, k, m))), Op.ADD, (1,)), (n, m))


def scaled(x: UOp, by: float) -> UOp:
    return b.mul(x, by)


# fmt: off
#: program -> ops that are to be there, and ops that are to be gone.
PROGRAMS: dict[str, tuple[UOp, dict[Op, int]]] = {
    "a quotient by a constant": (third(matrix(0, 4, 5)), {Op.DIV: 0, Op.MUL: 1}),
    "a value less itself": (b.sub(matrix(0, 4, 5), matrix(0, 4, 5)), {Op.SUB: 0, Op.EXPAND: 1}),
    "a repeated constant": (b.mul(matrix(0, 4, 5), b.expand(b.reshape(b.const(0.0, dt.float32), (1, 1)), (4, 5))), {Op.MUL: 0}),
    "exponentials": (b.mul(b.build_alu_with_promotion(Op.EXP2, matrix(0, 4, 5)),
                           b.build_alu_with_promotion(Op.EXP2, matrix(1, 4, 5))),
                     {Op.EXP2: 1, Op.MUL: 0, Op.ADD: 1}),
    "a common factor": (b.add(b.mul(matrix(0, 4, 5), matrix(1, 4, 5)), b.mul(matrix(2, 4, 5), matrix(0, 4, 5))), {Op.MUL: 1}),
    "rows by their sums": (softmax(matrix(0, 4, 5)), {Op.DIV: 0, Op.RECIP: 1}),
    "a sum of thirds": (b.reduce(third(matrix(0, 4, 5)), Op.ADD, (1,)), {Op.DIV: 0, Op.MUL: 1}),
    "a product of scaled": (product(scaled(matrix(0, 4, 9), 0.5), scaled(matrix(1, 9, 3), 0.25)), {Op.MUL: 2}),
    "a product of soft": (product(softmax(matrix(0, 4, 9)), matrix(1, 9, 3)), {Op.MUL: 2, Op.DIV: 0}),
    "a sum of shares": (b.reduce(b.build_alu_with_promotion(Op.DIV, matrix(0, 4, 5), matrix(1, 1, 5)), Op.ADD, (0,)),
                        {Op.DIV: 1, Op.RECIP: 0}),
    "columns": (b.reduce(b.mul(matrix(0, 4, 5), matrix(1, 1, 5)), Op.ADD, (0,)), {Op.MUL: 1}),
}
# fmt: on


def inputs_of(graph: UOp) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    params = {u.arg.slot: u.shape for u in toposort(graph) if u.op is Op.PARAM and u.arg.name is None}
    return {f"p{k}": rng.uniform(0.5, 2, params[k]).astype(np.float32) for k in sorted(params)}


def relaxed(graph: UOp) -> UOp:
    """What the program computes, as a graph of the TENSOR dialect."""
    found = apply_fast_math_if_order_kept(inline_calls_and_drop_gradient_markers(graph))
    verify(found, Dialect.TENSOR)
    return found


def counts(graph: UOp) -> dict[Op, int]:
    found = [u.op for u in toposort(graph)]
    return {op: found.count(op) for op in Op}


# Off


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_without_it_no_rule_of_fast_math_fires(path: Path) -> None:
    try:
        with record_transforms() as log:
            stages(parse_file(str(path)), create_backend("c").target, Config())
    except UopsError:
        pass  # what was done before the refusal counts
    assert log.applications_by_assuming_rule == {}
    assert "relax" not in {m.pass_name for m in log.transforms}


def test_it_is_off_unless_asked_for() -> None:
    assert not Config().fast_math
    assert not Config.from_environment({}).fast_math
    assert Config.from_environment({"UOPS_FAST_MATH": "1"}).fast_math


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_it_the_program_is_as_written(name: str) -> None:
    graph, _ = PROGRAMS[name]
    assert stages(graph, create_backend("c").target, Config())["callify"] is callify(graph)


# On


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_does_less(name: str) -> None:
    graph, expected = PROGRAMS[name]
    found = counts(relaxed(graph))
    assert {op: found[op] for op in expected} == expected
    assert relaxed(graph).shape == graph.shape
    assert apply_fast_math_if_order_kept(relaxed(graph)) is relaxed(graph)


@pytest.mark.parametrize("backend", ["c", "llvm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay_near_and_are_those_of_the_relaxed_program(name: str, backend: str) -> None:
    graph, _ = PROGRAMS[name]
    inputs = inputs_of(graph)
    got = runtime.compile(graph, create_backend(backend).target, FAST)(inputs).values[0]
    strict = runtime.compile(graph, create_backend(backend).target, Config())(inputs).values[0]
    assert np.allclose(got, strict, rtol=16 * 2.0**-23, atol=0)  # at most 9 addends and two more roundings, all of one sign
    allowed = Expectation.of_program(relaxed(graph), inputs)
    assert find_value_outside_allowed_set(allowed, 0, {0: got}) is None


def test_values_do_change() -> None:
    graph, _ = PROGRAMS["a quotient by a constant"]
    inputs = inputs_of(graph)
    fast, strict = (uops.compile(graph, "c", fast_math=f)(inputs).values[0] for f in (True, False))
    assert (fast != strict).any()


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_the_corpus_compiles_to_well_formed_programs(path: Path) -> None:
    graph = parse_file(str(path))
    try:
        stages(graph, create_backend("c").target, Config(verify=True))
    except UopsError:
        return  # the compiler refuses it without fast-math too
    stages(graph, create_backend("c").target, FAST)


def test_arguments_stay_though_nobody_reads_them() -> None:
    graph, _ = PROGRAMS["a value less itself"]
    program = runtime.compile(graph, create_backend("c").target, FAST)
    assert program.keys == runtime.compile(graph, create_backend("c").target, Config()).keys == ("p0",)
    assert not program(inputs_of(graph)).values[0].any()


def test_one_node_has_one_value() -> None:
    x = third(matrix(0, 40))
    root = b.tuple_(x, b.contiguous(x), b.reduce(b.build_alu_with_promotion(Op.CMPNE, x, b.contiguous(x)), Op.MAX, (0,)))
    first, second, differs = runtime.compile(root, create_backend("llvm").target, FAST)(inputs_of(root)).values
    assert np.array_equal(first, second)
    assert not differs.any()


def test_a_narrow_sum_keeps_the_scale_of_its_addends() -> None:
    graph = b.reduce(scaled(matrix(0, 4, 5, dtype=dt.float16), 0.5), Op.ADD, (1,))
    assert relaxed(graph) is graph


def test_a_factor_stays_where_it_is_multiplied_less_often() -> None:
    graph = product(scaled(matrix(0, 4, 3), 0.5), matrix(1, 3, 9))
    assert relaxed(graph) is graph


def test_integers_stay() -> None:
    x = matrix(0, 4, dtype=dt.int32)
    graph = b.add(b.sub(x, x), b.mul(x, 1))
    assert relaxed(graph) is graph


def test_a_symbolic_extent_is_kept() -> None:
    n = b.variable("n", 1, 9)
    graph = b.reduce(third(b.shrink(matrix(0, 9), (0,), (n,))), Op.ADD, (0,))
    inputs = {**inputs_of(graph), "n": 4}
    got = runtime.compile(graph, create_backend("c").target, FAST)(inputs).values[0]
    assert np.allclose(got, inputs["p0"][:4].sum() / 3, rtol=1e-5)


def test_the_shape_of_an_argument_is_kept() -> None:
    n = b.variable("n", 1, 9)
    graph = third(b.param(0, (UOp(Op.MUL, (b.index(3), n)),), dt.float32))
    called = stages(graph, create_backend("c").target, FAST)["callify"]
    assert called.src[1:] == callify(graph).src[1:]
    got = runtime.compile(graph, create_backend("c").target, FAST)({"p0": np.ones(6, np.float32), "n": 2}).values[0]
    assert np.allclose(got, 1 / 3, rtol=1e-6)


def test_a_tower_of_squares_is_no_tower_of_constants() -> None:
    x = scaled(matrix(0, 4, 5), 1e-30)
    for _ in range(40):
        x = b.mul(x, x)
    assert len(toposort(relaxed(b.reduce(x, Op.ADD, (1,))))) < 200


# Who else has to know


def test_a_program_is_cached_with_the_setting() -> None:
    graph, _ = PROGRAMS["a sum of thirds"]
    fast, strict = (runtime.compile(graph, create_backend("c").target, Config(fast_math=f)) for f in (True, False))
    assert fast is not strict
    assert fast.program is not strict.program


def test_tensors_take_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.linspace(1, 2, 50, dtype=np.float32)
    strict = (Tensor(values) / 3.0).numpy()
    monkeypatch.setenv("UOPS_FAST_MATH", "1")
    reload_default_config()
    try:
        fast = (Tensor(values) / 3.0).numpy()
    finally:
        monkeypatch.undo()
        reload_default_config()
    assert np.array_equal(fast, values * np.float32(1 / 3))
    assert not np.array_equal(fast, strict)


def test_a_backend_that_is_no_target_has_no_fast_math() -> None:
    with pytest.raises(Unsupported, match="fast-math"):
        uops.compile(PROGRAMS["columns"][0], "interp", fast_math=True)


def test_validation_counts_its_steps_apart() -> None:
    graph, _ = PROGRAMS["a sum of thirds"]
    passed, steps, log = record_lowering_up_to_plan(graph, create_backend("c").target, FAST)
    assert log.applications_by_assuming_rule == {"real-div-constant": 1}
    report = validate(passed, steps, log)
    report.raise_unless_proved()
    assert report.fast_math_counts == log.applications_by_assuming_rule
    assert LoweringLog().applications_by_assuming_rule == {}


def test_a_certificate_names_what_it_assumes() -> None:
    graph, _ = PROGRAMS["a quotient by a constant"]
    made = C.certify(graph, create_backend("c").target, FAST)
    assert "real-div-constant assumes no rounding" in made["trusted"]
    assert C.check_certificate_and_list_faults(made) == []
    assert C.check_certificate_and_list_faults({**made, "trusted": list(C.TRUSTED)}) == [
        "what fast-math assumes is not in the trusted base"
    ]
    other = {**made, "fast_math": {**made["fast_math"], "real-div-constant": "0" * 64}}
    assert "rule real-div-constant has changed since it was certified" in C.check_certificate_and_list_faults(other)
    assert "fast_math" not in C.certify(graph, create_backend("c").target, Config())


def test_the_command_takes_it_and_says_what_it_assumes(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    path.write_text("%0 = param (4), slot=0 : f32\n%1 = const 3.0 : f32\n%2 = div %0, %1\n")
    lines = CliRunner().invoke(main, ["compile", str(path), "-b", "c", "--fast-math", "--log"]).output.splitlines()
    assert {e["rule"]: e["assumes"] for e in map(json.loads, lines) if "assumes" in e} == {"real-div-constant": "no rounding"}
    plain = CliRunner().invoke(main, ["compile", str(path), "-b", "c", "--log"]).output
    assert "assumes" not in plain


@pytest.mark.parametrize("command", [("conform", "-b", "c"), ("fuzz", "-b", "c"), ("stages",), ("bisect", "{}", "-b", "c")])
def test_who_judges_values_refuses(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.uops"
    path.write_text("%0 = param (4), slot=0 : f32\n")
    monkeypatch.setenv("UOPS_FAST_MATH", "1")
    reload_default_config()
    try:
        result = CliRunner().invoke(main, [w.format(path) for w in command])
    finally:
        monkeypatch.undo()
        reload_default_config()
    assert result.exit_code == 2
    assert "UOPS_FAST_MATH" in result.output


@pytest.mark.parametrize("by", [0.0, 1.0])
def test_memory_is_read_before_a_store_that_needs_the_value_no_more(by):
    """x becomes 0 * (2 x), which needs no x over the reals; 3 (2 x) is of the x before."""
    x = b.param(0, (4,), dt.float32)
    twice = b.mul(x, 2.0)
    stored = UOp(Op.AFTER, (x, UOp(Op.STORE, (x, b.mul(twice, by)))))
    program = uops.compile(UOp(Op.TUPLE, (stored, b.mul(twice, 3.0))), "llvm", fast_math=True)
    found = program({"p0": np.array([1, 2, 3, 4], np.float32)}).values
    assert found[0].tolist() == [2 * by, 4 * by, 6 * by, 8 * by] and found[1].tolist() == [6, 12, 18, 24]


def sum_of_doubles() -> UOp:
    """Sums of eight elements of Param 0, each times 2, as a loop over Range 1."""
    i, r = b.range_(4, 0), b.range_(8, 1, AxisType.REDUCE)
    twice = b.mul(b.load(b.at(matrix(0, 32), b.add(b.mul(i, 8), r))), 2.0)
    return b.end(b.store(b.at(matrix(1, 4), i), UOp(Op.REDUCE, (twice, r), ReduceArg(Op.ADD, ()))), i)


def test_a_sum_keeps_its_loop_when_a_factor_leaves_it():
    found = apply_fast_math_if_order_kept(b.sink(sum_of_doubles()))
    (total,) = nodes_with_op(found, Op.REDUCE)
    assert total.operand.op is Op.LOAD and [r.arg.axis_id for r in ranges_closed_by(total)] == [1]


def instructions_with_a_common_factor() -> UOp:
    """A list that computes x * y + z * y, for which fast-math knows a shorter one."""
    i = b.range_(4, 0)
    memory = x, y, z = matrix(0, 32), matrix(1, 4), matrix(2, 4)
    at = b.at(x, i), b.at(y, i), b.at(z, i)
    values = u, v, w = [b.load(a) for a in at]
    left, right = b.mul(u, v), b.mul(w, v)
    total = b.add(left, right)
    store = b.store(at[1], total)
    return UOp(Op.LINEAR, (*memory, i, *at, *values, left, right, total, store, b.end(store, i)))


@pytest.mark.parametrize("kernel", [b.sink(sum_of_doubles(), name="doubles"), instructions_with_a_common_factor()])
def test_kernels_written_by_hand_stay_R166(kernel):
    memory = b.buffer(4, dt.float32, unique=1)
    graph = b.after(memory, b.call(kernel, matrix(0, 32), memory, matrix(2, 4), written=(1,)))
    inputs = {**inputs_of(graph), "b1": np.ones(4, np.float32)}
    target = create_backend("c").target
    fast, strict = (stages(graph, target, Config(fast_math=f, verify=True))["callify"] for f in (True, False))
    assert fast is strict
    assert np.allclose(uops.compile(graph, "c", fast_math=True)(inputs).values[0], uops.run(graph, inputs).values[0], rtol=1e-5)


@pytest.mark.parametrize("arg", [None, CallArg()])
def test_a_call_that_does_not_say_what_it_writes_may_write_all_its_arguments(arg):
    x, i, p = b.buffer(4, dt.float32, unique=1), b.range_(4, 0), b.param(0, (4,), dt.float32)
    kernel = b.sink(b.end(b.store(b.at(p, i), b.add(b.load(b.at(p, i)), 10.0)), i), name="k")
    call = UOp(Op.CALL, (kernel, x, b.mul(x, 3.0)), arg)
    root = b.div(b.mul(UOp(Op.AFTER, (x, call)), 2.0), 2.0)
    inputs = {"b1": np.arange(4, dtype=np.float32)}
    assert apply_fast_math_if_order_kept(root) is not root
    values = [uops.run(r, inputs).values[0].tolist() for r in (apply_fast_math_if_order_kept(root), root)]
    assert values == [[10, 11, 12, 13]] * 2
