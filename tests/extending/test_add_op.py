"""`docs/extending/add-an-op.md`, followed for a planted op, Cbrt: all of it, and all but one step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from planting import GUIDES, Insertion, plant, read_steps, run_check

ELEMENTARY = "compiler/decompose/elementary.py"
REFERENCES, MULTIPRECISION = "backends/conformance/references.py", "backends/conformance/multiprecision.py"
STEPS = {step.number: step for step in read_steps("add-an-op")}

_EXACT = '''

def cbrt(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Cbrt."""
    x = fmt.decode(a)
    if x.kind == NAN:
        return any_nan(fmt)
    if x.kind == INFINITE or not x.m:
        return float_result(fmt, a)
    shift = 3 * fmt.precision + 9
    shift += (x.e - shift) % 3
    m = x.m << shift
    r = 1 << (m.bit_length() // 3 + 1)
    while r**3 > m:
        r = (2 * r + m // (r * r)) // 3
    s, q = fmt.round_without_overflow((r << 1) | (r**3 != m), (x.e - shift) // 3 - 1)
    return floats_within_ulps(fmt, x.sign, s, q, ulp_allowance(fmt, core))
'''
_GRAPH = '''

def cbrt(x: Expr) -> Expr:
    """Return the cube root: 2^(log2(x) / 3), and one step of Newton."""
    magnitude = where(x < 0.0, -x, x)
    y = exp2(log2(magnitude) * (1 / 3))
    y = y - (y - magnitude / (y * y)) * (1 / 3)
    return where((magnitude > 0.0) & (magnitude < math.inf), where(x < 0.0, -y, y), x)
'''

#: Step -> what it puts behind which text of which file.
DONE: dict[int, tuple[Insertion, ...]] = {
    1: (
        Insertion("spec/ir/ops.py", "    THREEFRY = auto()\n", "    CBRT = auto()\n"),
        Insertion("spec/ir/ops.py", "Op.SIN, Op.SQRT", ", Op.CBRT"),
    ),
    2: (Insertion("spec/ir/derive/minmax.py", "Op.MULACC, Op.THREEFRY", ", Op.CBRT"),),
    3: (
        Insertion(
            "spec/rows/gradients/elementwise.py",
            'make_gradient_summing_broadcasts("g * y * ln 2", lambda u, g: (b.mul(g, b.mul(u, math.log(2))),)),\n',
            '    Op.CBRT:   make_gradient_summing_broadcasts("g * y / (3 * a)", '
            "lambda u, g: (b.div(b.mul(g, u), b.mul(u.operand, 3.0)),)),\n",
        ),
    ),
    4: (
        Insertion(
            "spec/rows/table/decomposed.py",
            "], threefry)\n",
            'r(Op.CBRT, "Cbrt", None, "A", "The cube root of x.", [FLOATS], APPROXIMATION)\n',
        ),
    ),
    5: (Insertion("spec/rows/accuracy.py", "Op.SIN, Op.POW", ", Op.CBRT"),),
    6: (Insertion("spec/rulings.md", "| R17 | Exp2, Log2, Sin", ", Cbrt"),),
    7: (Insertion("spec/ir/build.py", "Op.SHR, Op.SHL, Op.THREEFRY))\n", "cbrt = _unary_builder(Op.CBRT)\n"),),
    8: (
        Insertion(
            "interp/ops/elementwise.py",
            "    Op.SQRT:     _float_row(np.sqrt),\n",
            "    Op.CBRT:     _transcendental_row(np.cbrt, np.cbrt),\n",
        ),
    ),
    9: (
        Insertion(
            "interp/exact/numbers/transcendental.py",
            "    return unite_in_float_hull(rounded, hull_of_exp2_of_product(fmt, log2(fmt, True, a), fmt.encode(0, 1, -1)))\n",
            _EXACT,
        ),
        Insertion("interp/exact/elementwise.py", "from uops.interp.exact.numbers.transcendental import (\n", "    cbrt,\n"),
        Insertion(
            "interp/exact/elementwise.py",
            "    Op.SQRT:   dispatch_by_kind(None,          None,          evaluate_sqrt_with_core_decomposition),\n",
            "    Op.CBRT:   dispatch_by_kind(None,          None,          cbrt),\n",
        ),
    ),
    10: (
        Insertion(
            "interp/allowed/elementwise/transcendental.py",
            "    Op.EXP2: Approximation(_is_exp2_exact, 0.0),\n",
            "    Op.CBRT: Approximation(_is_sin_exact, -np.inf),\n",
        ),
    ),
    11: (Insertion("interp/allowed/core.py", "Op.LOG2: _widen_to_core_ulps,", " Op.CBRT: _widen_to_core_ulps,"),),
    12: (Insertion("compiler/rewrite/fold.py", "UNFOLDED = frozenset({Op.EXP2,", " Op.CBRT,"),),
    13: (Insertion("compiler/prove/semantics.py", "_FLOAT_ONLY = frozenset({Op.RECIP,", " Op.CBRT,"),),
    14: (Insertion("compiler/prove/semantics.py", "for op in (Op.EXP2, Op.LOG2,", " Op.CBRT,"),),
    15: (
        Insertion(
            "compiler/prove/reals.py",
            '    Op.SIN: lambda m, d, a: m.apply_uninterpreted("sin", a, sort=REAL),\n',
            '    Op.CBRT: lambda m, d, a: m.apply_uninterpreted("cbrt", a, sort=REAL),\n',
        ),
    ),
    16: (Insertion("compiler/rewrite/costs.py", "    Op.POW:   OpCost(40, 60),", " Op.CBRT: OpCost(12, 45),"),),
    17: (Insertion("compiler/decompose/small.py", "Op.LOG2, Op.SIN, Op.POW,", " Op.CBRT,"),),
    18: (
        Insertion(ELEMENTARY, "    Op.EXP2: lambda x, _: exp2(x[0]),\n", "    Op.CBRT: lambda x, _: cbrt(x[0]),\n"),
        Insertion(ELEMENTARY, "    return min(bound, dtype.max_finite) if dtype.is_float else bound\n", _GRAPH),
        Insertion(ELEMENTARY, "from uops.compiler.decompose.build import Expr", ", where"),
    ),
    19: (
        Insertion(
            "backends/tinygrad/adapter.py", "UNSUPPORTED = (", 'Missing("Decomposed/Cbrt", "*", "tinygrad has no cube root"), '
        ),
    ),
    20: (
        Insertion(
            "backends/conformance/report/texts.py", '    Op.SIN:       ("R17", "R19"),\n', '    Op.CBRT:      ("R17", "R19"),\n'
        ),
    ),
    21: (Insertion("backends/conformance/exclusions.py", '"Sqrt", "Div", "Pow"', ', "Cbrt"'),),
    22: (
        Insertion(
            REFERENCES,
            "F32_REFERENCES: dict[str, ReferenceFunction] = {\n",
            '    "cbrt/float32": ReferenceFunction(Op.CBRT, _F32, dt.float32, 2.0, _make_float32_judge_by_float64(np.cbrt)),\n',
        ),
        Insertion(
            REFERENCES,
            "F64_REFERENCES: dict[str, ReferenceFunction] = {\n",
            '    "cbrt/float64": ReferenceFunction(Op.CBRT, (dt.float64,), '
            'dt.float64, 2.0, _make_mpmath_judge("cbrt", dt.float64)),\n',
        ),
        Insertion(REFERENCES, "    Op.EXP2: _draw_hard_exp2_inputs,\n", "    Op.CBRT: lambda rng, n, moderate: moderate,\n"),
    ),
    23: (
        Insertion(MULTIPRECISION, '    "exp2": _exp2_special_result,\n', '    "cbrt": _log2_special_result,\n'),
        Insertion(MULTIPRECISION, '    "sin": _exact_sin,\n', '    "cbrt": lambda m, x: m.cbrt(m.mpf(x)),\n'),
    ),
    24: (Insertion("fuzz/generate/producers.py", "Op.SIN, Op.SQRT, Op.POW", ", Op.CBRT"),),
}


def test_the_guide_names_every_file() -> None:
    assert sorted(STEPS) == sorted(DONE)
    parts = dict(enumerate((GUIDES / "add-an-op.md").read_text(encoding="utf-8").split("\n## ")))
    assert [(k, i.file) for k, step in DONE.items() for i in step if f"`{i.file}`" not in parts[k]] == []


@pytest.mark.parametrize("left_out", sorted(DONE))
def test_a_step_that_is_left_out_is_named(left_out: int, tmp_path: Path) -> None:
    passed, text = run_check(plant(tmp_path, DONE, left_out), STEPS[left_out].check)
    assert not passed
    named = next((i.file for i in DONE[left_out] if re.search(rf"^E .*Error: .*{i.file}", text, re.MULTILINE)), None)
    assert named is not None, text


def test_with_all_steps_every_check_passes(tmp_path: Path) -> None:
    passed, text = run_check(plant(tmp_path, DONE), *(step.check for step in STEPS.values()))
    assert passed, text
    command = [sys.executable, "-m", "uops", "conform", "--backend", "llvm", "--rows", "Decomposed/Cbrt"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    judged = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert judged.returncode == 0, judged.stdout + judged.stderr
