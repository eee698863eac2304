"""What the backends and the judge know of every elementwise op: no table leaves one out. Each failure names the file to edit."""

from fnmatch import fnmatchcase

from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import ALU, UNARY, Op


def test_every_op_of_plain_targets_is_rendered() -> None:
    from uops.backends.cstyle.alu import EMIT as CSTYLE
    from uops.backends.llvm.alu import EMIT as LLVM
    from uops.compiler.target import PLAIN_OPS

    for file, emit in (("cstyle", CSTYLE), ("llvm", LLVM)):
        missing = (PLAIN_OPS & ALU) - emit.keys()
        assert not missing, f"backends/{file}/alu.py: render {missing}"


def test_every_elementwise_op_has_a_form_in_tinygrad_or_is_declared_missing() -> None:
    from uops.backends.tinygrad.adapter import UNSUPPORTED
    from uops.backends.tinygrad.forms import FORMS
    from uops.spec.rows.rows import ROWS

    lost = {op for op in ALU - {Op.MIN} - FORMS.keys() if not any(fnmatchcase(ROWS[op].id, m.row) for m in UNSUPPORTED)}
    assert not lost, f"backends/tinygrad/forms.py or backends/tinygrad/adapter.py: {lost} has no form and is not declared missing"


def test_every_report_names_the_rulings_of_an_op() -> None:
    from uops.backends.conformance.report.texts import MEANING  # which asserts it at import
    from uops.spec.rulings import RULINGS

    unknown = {r for rulings in MEANING.values() for r in rulings} - RULINGS.keys()
    assert not unknown, f"backends/conformance/report/texts.py or spec/rulings.md: {unknown}"


def test_the_suite_requires_the_dtypes_that_rows_accept() -> None:
    from uops.backends.conformance.exclusions import find_exclusion
    from uops.backends.testing.signatures import is_tested_dtype
    from uops.spec.rows.rows import ROWS

    wrong = [
        (op.name, d.name)
        for op in ALU - {Op.MIN}
        for d in dt.STORABLE
        if is_tested_dtype(op, d) != (find_exclusion(ROWS[op].id, d.name) is None)
    ]
    assert not wrong, f"backends/conformance/exclusions.py: excluded, or not, against what the row says: {wrong}"


def test_every_rounded_op_has_a_reference_function() -> None:
    from uops.backends.conformance.references import F32_REFERENCES, F64_REFERENCES
    from uops.spec.rows.accuracy import ACCURACY, Accuracy

    approximated = {op for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED}
    rounded = {op for op in UNARY if ACCURACY[op] is Accuracy.ROUNDED}
    swept = {r.op for r in (*F32_REFERENCES.values(), *F64_REFERENCES.values()) if r.operands[0] is dt.float32}
    drawn = {r.op for r in F64_REFERENCES.values() if r.operands[0] is dt.float64}
    assert swept >= approximated | rounded, f"backends/conformance/references.py: no float32 of {(approximated | rounded) - swept}"
    assert drawn >= approximated, f"backends/conformance/references.py: no float64 of {approximated - drawn}"


def test_every_reference_function_has_its_points_and_its_exact_value() -> None:
    from uops.backends.conformance.multiprecision import _FUNCTIONS, _SPECIAL
    from uops.backends.conformance.references import _HARD, F64_REFERENCES

    points = {r.op for r in F64_REFERENCES.values()} - _HARD.keys()
    assert not points, f"backends/conformance/references.py: draw hard operands of {points}"
    names = {name.partition("/")[0] for name in F64_REFERENCES}
    for table in (_FUNCTIONS, _SPECIAL):
        assert names <= table.keys(), f"backends/conformance/multiprecision.py: add {names - table.keys()}"
