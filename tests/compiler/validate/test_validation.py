"""Validation as a setting of the compiler: what it proves, when it raises, and what it loads."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import uops
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceTier
from uops.backends.conformance.stage_judge import KEEPS
from uops.backends.registry import create_backend
from uops.compiler import Config, compile, lower
from uops.compiler.log import LoweringLog
from uops.compiler.passes.memory_plan import place_intermediates_in_arenas_per_device
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.prove.solver.solver import NoSolver, SolverWorker
from uops.compiler.rewrite.pattern import ALL_INTS, as_pattern, var
from uops.compiler.rewrite.rule import RewriteStep
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.validate import DecisionMethod, Invalid, ObligationKind, launch, take_validation_counts, validate, values
from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import decide_by_solver, decide_by_trying_every_point, is_proved_by_linear_arithmetic
from uops.compiler.validate.fingerprints.compare import Comparison
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.model import ValidationClaim
from uops.compiler.validate.terms import Condition, LinearSum, Operation, Unknown
from uops.compiler.validate.values import COVERED, replay_proved_steps_and_find_fault, validate_linearization
from uops.fuzz.generate.kinds import sample
from uops.interp import run
from uops.spec.errors import Unsupported
from uops.spec.extras import install_command
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.text import parse, show

CHECKED = Config(validate=True, reuse=False)


def product(rows=5):
    x, y = b.param(0, (rows, 7), dt.float32), b.param(1, (7, 3), dt.float32)
    return b.reshape(b.reduce(b.mul(b.reshape(x, (rows, 7, 1)), b.reshape(y, (1, 7, 3))), b.Op.ADD, (1,)), (rows, 3))


@pytest.mark.parametrize("name", ["llvm", "c"])
def test_a_validated_program_runs_and_is_counted(name):
    take_validation_counts()
    program = compile(product(), create_backend(name).target, CHECKED)
    counts = take_validation_counts()
    assert counts["kernels"] == 1 and sum(counts.values()) > 8 and not any("not proved" in k for k in counts)
    inputs = {"p0": np.ones((5, 7), np.float32), "p1": np.ones((7, 3), np.float32)}
    assert np.array_equal(program(inputs).values[0], run(product(), inputs).values[0])


@pytest.mark.parametrize("kind", ["tensor", "programs", "symbolic"])
def test_programs_of_the_generator_are_validated_with_any_schedule(kind):
    for k in range(6):
        graph = sample(0, k, (kind,)).graph
        lower(graph, create_backend("c").target, config=Config(validate=True, reuse=False, forced=k), upto="plan")


def test_what_a_kernel_reads_of_its_own_memory_is_no_counterexample():
    """The mask of the padding is kept in LOCAL memory, and says more than that a truth is one."""
    x = b.param(0, (1, 1, 6), dt.float32)
    padded = b.pad(x, (4, 1, 0), (6, 6, 6))
    graph = b.reduce(b.sub(padded, b.reduce(padded, b.Op.ADD, (0,))), b.Op.ADD, (0,))
    try:
        lower(graph, create_backend("llvm").target, config=CHECKED, upto="plan")
    except Invalid as e:
        assert not [v for v in e.verdicts if v.counterexample is not None]


SQUARES = """%0 = param (), slot=none, name="n", bounds=[1, 7] : index
%1 = param (%0, %0), slot=0 : i16
%2 = mul %0, %0
%3 = reshape %1, (1, %2)
%4 = param (), slot=none, name="m", bounds=[1, 5] : index
%5 = expand %3, (%4, %2)
%6 = neg %5"""


def test_a_variable_has_one_value_in_all_executions():
    """Element 0 of two launches, of n = 1 and of n = 2, is not an element that is written twice."""
    lower(parse(SQUARES), create_backend("llvm").target, config=CHECKED, upto="plan")


def test_a_kernel_that_is_not_validated_is_an_error_that_names_the_obligation(monkeypatch):
    def lazy(before, after, worker):
        return validate_kernel(before, parse(show(after).replace("range 5,", "range 4,")), worker)

    monkeypatch.setattr(launch, "validate_kernel", lazy)
    with pytest.raises(Invalid, match="all written: argument 0: refuted: element 12 is not written"):
        lower(
            b.add(b.param(0, (5, 3), dt.float32), b.param(1, (5, 1), dt.float32)),
            create_backend("c").target,
            upto="plan",
            config=NEVER,
        )


def test_a_plan_that_is_not_validated_is_an_error(monkeypatch):
    monkeypatch.setattr(
        launch, "generate_plan_claims", lambda *stages: [ValidationClaim(ObligationKind.PLAN, "planted", T.TRUE, T.FALSE)]
    )
    with pytest.raises(Invalid, match="the memory plan is not validated: plan: planted: refuted: always"):
        lower(product(), create_backend("c").target, upto="plan", config=CHECKED)


def test_other_instructions_for_a_body_that_was_validated_are_validated_anew():
    passed, steps, log = record_lowering_up_to_plan(b.neg(b.param(0, (5, 3), dt.float16)), create_backend("c").target, NEVER)
    assert not validate(passed, steps, log).kernels[0].failures
    passed["linearize"] = parse(show(passed["linearize"]).replace("range 5,", "range 4,"))
    assert ObligationKind.COVER in {v.kind for v in validate(passed, steps, log).kernels[0].failures}


def test_a_launch_of_which_a_pass_changes_an_argument_or_a_kernel_is_refused():
    passed, steps, log = record_lowering_up_to_plan(
        b.sub(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32)), create_backend("c").target, NEVER
    )
    (call,) = passed["linearize"].src
    body, out, x, y = call.src
    swapped = passed["linearize"].replace(src=(call.replace(src=(body, out, y, x)),))
    silent = passed["linearize"].replace(src=(call.replace(arg=replace(call.arg, written=())),))
    other = parse(show(passed["linearize"]).replace("range 4,", "range 3,"))
    from_linearize = ("linearize", "wmma", "workgroups", "private memory", "plan")
    for changed, place in (
        (dict.fromkeys(from_linearize, swapped), "call 0 keeps its arguments"),
        (dict.fromkeys(from_linearize, silent), "call 0 keeps its arguments"),
        ({"plan": other}, "call 0 keeps its kernel"),
    ):
        assert [v.place for v in validate({**passed, **changed}, steps, log).verdicts if not v.is_proved] == [place]


def test_a_result_that_shares_memory_of_the_launch_is_refused():
    memory = b.buffer(4, dt.float32, unique=1)
    graph = b.after(memory, b.store(memory, b.add(b.contiguous(b.neg(b.param(0, (4,), dt.float32))), 1)))
    passed, steps, log = record_lowering_up_to_plan(graph, create_backend("c").target, NEVER)
    validate(passed, steps, log).raise_unless_proved()
    passed["plan"] = place_intermediates_in_arenas_per_device(passed["linearize"], caller_buffers=())
    bad = [v.place for v in validate(passed, steps, log).plan if not v.is_proved]
    assert bad == ["buffer 1 is not the caller's", "buffer 2 is not the caller's"]


def test_it_is_an_option_of_compile_for_targets_of_the_compiler():
    take_validation_counts()
    program = uops.compile(product(), "c", validate=True)
    assert take_validation_counts()["kernels"] == 1
    ones = {"p0": np.ones((5, 7), np.float32), "p1": np.ones((7, 3), np.float32)}
    assert program(ones).values[0].tolist() == [[7.0] * 3] * 5
    with pytest.raises(Unsupported, match="validation"):
        uops.compile(product(), "interp", validate=True)


NEVER = Config(validate=True, reuse=False, optimize=False)


def test_without_a_solver_it_is_an_error_that_says_what_to_install(monkeypatch):
    def absent():
        raise NoSolver(f"the prover needs Z3: {install_command('prove')}")

    monkeypatch.setattr(launch, "solver_version", absent)
    with pytest.raises(NoSolver, match=re.escape(install_command("prove"))):
        lower(product(), create_backend("c").target, upto="plan", config=CHECKED)


def test_the_compiler_loads_neither_validation_nor_the_solver():
    code = "import sys, uops.compiler, uops.compiler.pipeline; print([m for m in sys.modules if 'validate' in m or m == 'z3'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_pass_that_replays_nothing_names_its_check():
    assert {"optimize", "expand"} <= set(COVERED) and set(COVERED) - {"accumulate", "widths", "decompose", "join"} <= set(KEEPS)


def test_the_values_of_each_pass_are_proved_by_some_method():
    (found,) = validate(*record_lowering_up_to_plan(product(), create_backend("c").target, CHECKED)).kernels
    passes = {v.place: v for v in found.verdicts if v.kind is ObligationKind.VALUE}
    assert list(passes) == ["callify", "rangeify", *launch.PASSES]
    assert passes["callify"].by is DecisionMethod.STRUCTURE
    assert passes["rangeify"].by is DecisionMethod.STRUCTURE
    assert passes["decompose"].by is DecisionMethod.STRUCTURE and passes["accumulate"].by is DecisionMethod.FINGERPRINTS
    assert passes["join"].by is DecisionMethod.STRUCTURE


@pytest.mark.parametrize("is_split_logged", [True, False])
def test_a_kernel_that_is_fused_of_others_is_compared_with_the_program_or_covered_by_the_interpreter(is_split_logged):
    graphs, steps, log = record_lowering_up_to_plan(product(), create_backend("c").target, CHECKED)
    (call,) = graphs["rangeify"].src
    others = graphs | {
        "rangeify": graphs["rangeify"].replace(src=(call.replace(src=(graphs["linearize"].src[0].body, *call.arguments)),))
    }
    log.transforms[:] = [m for m in log.transforms if is_split_logged or m.pass_name != "realise"]
    (found,) = validate(others, steps, log).kernels
    (verdict,) = (v for v in found.verdicts if v.place == "join")
    if is_split_logged:
        assert verdict.by is DecisionMethod.STRUCTURE
        return
    assert verdict.by is DecisionMethod.INTERPRETER
    assert str(verdict).endswith(f"not proved, but covered by the interpreter: {COVERED['join']}")


def test_a_pass_whose_terms_are_not_compared_says_why_and_what_covers_it(monkeypatch):
    monkeypatch.setattr(values, "compare_values", lambda before, after, variables, with_laws: Comparison(None, "a reason"))
    (found,) = validate(*record_lowering_up_to_plan(product(rows=3), create_backend("c").target, CHECKED)).kernels
    (verdict,) = (v for v in found.verdicts if v.place == "accumulate")
    assert str(verdict).endswith(f"not proved, but covered by the interpreter: {COVERED['accumulate']} (a reason)")


@pytest.mark.parametrize("index", [0, 5, 6])
def test_a_node_that_is_replaced_by_more_than_its_decomposition_is_refused(index):
    x = b.param(1, (4,), dt.float16)
    _, steps, log = record_lowering_up_to_plan(b.add(b.mul(x, x), 3.0), create_backend("c").target, CHECKED)
    transforms = values.group_rewriter_transforms_by_result(log)
    before, after = (steps[name].src[0].body for name in ("widths", "decompose"))
    assert values.decide_decompositions(before, after, transforms).by is DecisionMethod.STRUCTURE
    (m,) = (m for m in transforms[after] if m.pass_name == "decompose")
    changed = [u for u in toposort(before) if m.replacements.get(u, u) is not u and u.dtype is dt.float16]
    u = changed[index % len(changed)]
    wrong = {**m.replacements, u: changed[(index + 1) % len(changed)]}
    found = values.decide_decompositions(before, after, {after: [replace(m, replacements=wrong)]})
    assert found.counterexample is not None and "something else than its decomposition" in found.counterexample.words


# Values


def test_a_step_that_no_proved_rule_makes_is_refused():
    x = b.param(0, (), dt.int32)
    before = b.add(x, 0)
    assert (
        replay_proved_steps_and_find_fault(before, x, [RewriteStep("made-up", before, x, {})], {}) == "rule made-up is not proved"
    )
    assert replay_proved_steps_and_find_fault(before, x, [], {}) == "the steps of the log give something else"
    rule = next(r for r in VALUES if (made := r.apply(before)) is not None and made[0] is x)
    unproved = replace(rule, name="made-up")
    assert (
        replay_proved_steps_and_find_fault(before, x, [RewriteStep("made-up", before, x, {})], {"made-up": unproved})
        == "rule made-up is not proved"
    )


@pytest.mark.parametrize(
    ("number", "change"),
    [(0, {"rhs": as_pattern(7)}), (1, {"lhs": var("x", ALL_INTS) + 1}), (0, {"when": var("x", ALL_INTS) + 0 >= 0})],
    ids=["right side", "left side", "condition"],
)
def test_a_rule_is_not_proved_by_the_name_of_one_that_is_in_whatever_order_they_are_asked(number, change):
    x = b.variable("n", 0, 9)
    proved = next(r for r in VALUES if r.name == "add-zero")
    for rule, n in ((proved, 0), (replace(proved, **change), number), (proved, 0), (replace(proved, **change), number)):
        before = b.add(x, n)
        after, *_ = rule.apply(before)
        fault = replay_proved_steps_and_find_fault(before, after, [RewriteStep(rule.name, before, after, {})], {rule.name: rule})
        assert fault == (None if rule is proved else f"rule {rule.name} is not proved")


def test_a_step_that_is_no_instance_of_its_rule_is_refused():
    x, y = (b.param(k, (), dt.int32) for k in range(2))
    before = b.add(x, 0)
    rule = next(r for r in VALUES if (made := r.apply(before)) is not None and made[0] is x)
    rules = {rule.name: rule}
    assert replay_proved_steps_and_find_fault(before, x, [RewriteStep(rule.name, before, x, {})], rules) is None
    assert (
        replay_proved_steps_and_find_fault(before, y, [RewriteStep(rule.name, before, y, {})], rules)
        == f"a step is no instance of rule {rule.name}"
    )
    assert (
        replay_proved_steps_and_find_fault(y, x, [RewriteStep(rule.name, y, x, {})], rules)
        == f"a step is no instance of rule {rule.name}"
    )


def test_a_list_that_leaves_out_or_misplaces_an_instruction_is_refused():
    graph = parse("%0 = param (1), slot=0 : f32\n%1 = index %0, 0\n%2 = const 1.0 : f32\n%3 = store %1, %2\n%4 = sink %3")
    store = graph.src[0]
    index = store.src[0]
    for instructions, proved in (((index.src[0], index, store), True), ((index.src[0], index), False), ((store, index), False)):
        assert validate_linearization(graph, b.UOp(b.Op.LINEAR, instructions)).is_proved is proved


#: A sum in a register, which is 0 at first.
SUMMED = """
%0 = param (1), slot=0 : f32
%1 = param (4), slot=1 : f32
%2 = buffer size=1, device="CPU", addrspace=reg, unique=1 : f32
%3 = const 0.0 : f32
%4 = index %2, 0
%5 = store %4, %3
%6 = range 4, axis_id=0, type=reduce
%7 = after %2, %5, %6
%8 = index %7, 0
%9 = load %8
%10 = index %1, %6
%11 = load %10
%12 = add %9, %11
%13 = store %8, %12
%14 = end %13, %6
%15 = after %2, %14
%16 = index %15, 0
%17 = load %16
%18 = index %0, 0
%19 = store %18, %17
%20 = {root}
"""


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", ""),
        ("%4, %6, %5, %7, %8, %9, %10, %11, %12, %13, %14, %15", "instruction 5 is not in the innermost of its loops"),
        ("%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %15, %14", "instruction 14 is used by 13"),
        ("%4, %5, %11, %6, %7, %8, %9, %12, %13, %14, %15", "instruction 5 is not in the innermost of its loops"),
    ],
)
def test_a_list_that_moves_an_access_into_a_loop_or_out_of_one_is_refused(listed, why):
    graph = parse(SUMMED.format(root="sink %19"))
    linear = parse(SUMMED.format(root=f"linear %0, %1, %2, {listed}, %16, %17, %18, %19"))
    found = validate_linearization(graph, linear)
    assert (found.counterexample.words if found.counterexample else "") == why


def test_a_loop_that_is_moved_into_another_one_is_refused():
    text = (
        SUMMED.split("%15 =")[0]
        + """
%15 = param (2), slot=2 : f32
%16 = range 2, axis_id=1, type=loop
%17 = index %15, %16
%18 = store %17, %3
%19 = end %18, %16
%20 = """
    )
    graph = parse(text + "sink %14, %19")
    first, other = "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14", "%16, %17, %18, %19"
    for listed, proved in ((f"{first}, {other}", True), (f"%16, {first}, %17, %18, %19", False)):
        assert validate_linearization(graph, parse(text + f"linear %1, %2, %15, {listed}")).is_proved is proved


def test_loops_that_do_not_nest_in_a_list_are_refused():
    text = """
%0 = param (6), slot=0 : f32
%1 = range 2, axis_id=0, type=loop
%2 = range 3, axis_id=1, type=loop
%3 = mul %1, 3
%4 = add %3, %2
%5 = index %0, %4
%6 = const 1.0 : f32
%7 = store %5, %6
%8 = end %7, %2
%9 = end %8, %1
%10 = """
    graph = parse(text + "sink %9")
    for ranges, why in (("%1, %3, %2", ""), ("%2, %1, %3", "instruction 7 closes loops that are not the innermost ones")):
        found = validate_linearization(graph, parse(text + f"linear %0, {ranges}, %4, %5, %7, %8, %9")).counterexample
        assert (found.words if found else "") == why


# Claims

X, Y = Unknown("x", 0, 9), Unknown("y", 0, 3)
CLAIMS = {
    "4x+y <= 39": (T.TRUE, T.is_nonnegative(LinearSum(39, ((X, -4), (Y, -1)))), True),
    "4x+y <= 38": (T.TRUE, T.is_nonnegative(LinearSum(38, ((X, -4), (Y, -1)))), False),
    "x < 3 gives 4x+y < 12": (
        T.is_nonnegative(LinearSum(2, ((X, -1),))),
        T.is_nonnegative(LinearSum(11, ((X, -4), (Y, -1)))),
        True,
    ),
    "x <= 0 gives x >= 1": (T.is_nonnegative(LinearSum(0, ((X, -1),))), T.is_nonnegative(LinearSum(-1, ((X, 1),))), False),
    "x <= 2 gives x <= 1": (T.is_nonnegative(LinearSum(2, ((X, -1),))), T.is_nonnegative(LinearSum(1, ((X, -1),))), False),
    "x >= 5 and y >= 0, or x >= 6": (
        T.TRUE,
        Condition(
            "or",
            (
                T.conjoin(T.is_nonnegative(LinearSum(-5, ((X, 1),))), T.is_nonnegative(T.as_sum(Y))),
                T.is_nonnegative(LinearSum(-6, ((X, 1),))),
            ),
        ),
        False,
    ),
    "x // 4 < 3": (T.TRUE, T.is_nonnegative(LinearSum(2, ((Operation("idiv", (T.as_sum(X), LinearSum(4))), -1),))), True),
    "x % 4 is y": (T.TRUE, T.is_zero(LinearSum(0, ((Operation("mod", (T.as_sum(X), LinearSum(4))), 1), (Y, -1)))), False),
    "x wraps": (T.TRUE, T.is_nonnegative(T.as_sum(Operation("wrap-i8", (LinearSum(120, ((X, 1),)),)))), False),
    "x or not x": (T.TRUE, Condition("or", (T.is_zero(T.as_sum(X)), T.negate(T.is_zero(T.as_sum(X))))), True),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_sums_points_and_the_solver_agree(name):
    given, goal, true = CLAIMS[name]
    claim = ValidationClaim(ObligationKind.BOUNDS, name, given, goal)
    worker = SolverWorker()
    try:
        points, solved = decide_by_trying_every_point(claim), decide_by_solver(claim, worker)
    finally:
        worker.close()
    assert points is not None and points.is_proved is true and solved.is_proved is true
    assert true or not is_proved_by_linear_arithmetic(claim)
    assert true or solved.counterexample is not None


@pytest.mark.parametrize(
    "sum_",
    [
        LinearSum(-(1 << 64), ((Unknown("v", 1 << 62, (1 << 62) + 1), 4),)),
        LinearSum(0, ((Unknown("v", 1 << 61, (1 << 61) + 1), 4), (Unknown("w", 1 << 61, (1 << 61) + 1), -4))),
    ],
)
def test_a_sum_with_a_part_beyond_64_bits_is_not_evaluated_at_points(sum_):
    assert max(map(abs, T.bounds(sum_))) < 1 << 10
    assert decide_by_trying_every_point(ValidationClaim(ObligationKind.BOUNDS, "", T.TRUE, T.is_nonnegative(sum_))) is None


def test_a_value_of_memory_is_not_evaluated_at_points():
    with pytest.raises(AssertionError):
        T.evaluate_at_points(T.as_sum(Operation("held-i32-1", (LinearSum(128),))), {})


def test_a_claim_for_which_the_steps_of_the_solver_run_out_is_not_proved(monkeypatch):
    monkeypatch.setattr("uops.compiler.validate.decide.STEPS", 1)
    square = Operation("mul", (T.as_sum(X), T.as_sum(X)))
    worker = SolverWorker()
    try:
        found = decide_by_solver(
            ValidationClaim(ObligationKind.BOUNDS, "", T.TRUE, T.is_nonnegative(LinearSum(0, ((square, 1), (X, -1))))), worker
        )
    finally:
        worker.close()
    assert not found.is_proved and found.by is None and found.why


def test_what_the_solver_does_not_decide_is_no_proof():
    claim = ValidationClaim(
        ObligationKind.BOUNDS, "", T.TRUE, T.is_nonnegative(LinearSum(-1, ((Operation("held-i32-1", (T.as_sum(X),)), 1),)))
    )
    worker = SolverWorker()
    try:
        found = decide_by_solver(claim, worker)
    finally:
        worker.close()
    assert not found.is_proved and found.by is None and found.counterexample is None


def test_moves_are_found_by_what_they_made():
    from uops.compiler.validate.values import group_rewriter_transforms_by_result

    assert group_rewriter_transforms_by_result(LoweringLog()) == {}


def test_an_if_that_the_graph_lacks_may_hold_what_its_stores_alone_need() -> None:
    """What else stands in it is not executed where its condition is false."""
    text = """%0 = param (4), slot=0 : i32
%1 = param (4), slot=1 : i32
%2 = range 4, axis_id=0, type=loop
%3 = index %1, %2
%4 = load %3
%5 = cmplt %4, 3
%6 = cmplt %4, 4
%7 = cast %6 : i32
%8 = index %0, %2
%9 = store %8, %7, %5
%10 = end %9, %2
"""
    graph = parse(text + '%11 = sink %10, name="k"')
    for condition, listed, fault in (
        ("%5", "%4, %5, %6, %11, %7, %8, %9, %12, %10", None),
        ("%5", "%4, %5, %6, %7, %8, %11, %9, %12, %10", None),
        ("%5", "%4, %11, %5, %6, %7, %8, %9, %12, %10", "is used by"),
        ("%5", "%4, %5, %6, %11, %7, %8, %9, %10", "has no end"),
        ("%5", "%5, %6, %11, %4, %7, %8, %9, %12, %10", "is not executed where the condition is false"),
        ("%5", "%4, %5, %6, %11, %7, %12, %8, %9, %10", "needs what is not computed where the condition is false"),
        ("%6", "%4, %5, %6, %11, %7, %8, %9, %12, %10", "is stored under another condition"),
    ):
        branch = f"%11 = if {condition}\n%12 = endif %11\n%13 = linear %0, %1, %2, %3, {listed}"
        found = validate_linearization(graph, parse(text + branch)).counterexample
        assert (found is None) is (fault is None), (listed, found)
        assert fault is None or fault in found.words, (listed, found)


@pytest.mark.slow
def test_a_tile_that_one_lane_stores_is_decided_without_the_solver():
    """All 256 elements of AMX's tile are of lane 0, whose number has one value: pairs of Stores need no query each."""
    (case,) = (c for c in generate_cases(ConformanceTier.FULL, "Codegen/Wmma") if c.name == "tdpbf16ps-16x16x32-float32")
    report = validate(*record_lowering_up_to_plan(case.graph, create_backend("c").target, Config(reuse=False)))
    assert all(v.is_proved for v in report.verdicts)
    assert DecisionMethod.SOLVER not in {v.by for k in report.kernels for v in k.verdicts}
