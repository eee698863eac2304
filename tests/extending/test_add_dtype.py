"""fp8e3m4 is planted by docs/extending/add-a-dtype.md: each step left out is named, and with all steps it works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planting import ROOT, Insertion, plant, read_steps, run_check

GUIDE = "add-a-dtype"
ROWS, LEDGER = "spec/ir/dtypes.py", "compiler/prove/ledger.jsonl"
BESIDE = 'ml_dtypes_name="float8_e5m2")\n'
ROW = 'fp8e3m4 = DType("fp8e3m4", "f8e3m4", DTypeKind.FLOAT, 8, 3, 4, ml_dtypes_name="float8_e3m4")\n'
#: Step -> what it inserts. Step 6 writes the ledger, which `uops prove` gives.
STEPS = {
    1: [Insertion("spec/rulings.md", "fp8e5m2, ", "fp8e3m4, ")],
    2: [Insertion(ROWS, BESIDE, ROW)],
    3: [Insertion(ROWS, "    fp8e4m3, fp8e5m2, ", "fp8e3m4, ")],
    4: [Insertion(ROWS, "    fp8e5m2: (float16,),\n", "    fp8e3m4: (float16,),\n")],
    5: [Insertion(ROWS, "    uint64: (fp8e4m3, fp8e5m2, ", "fp8e3m4, ")],
}
FILES = {1: "spec/rulings.md", 2: ROWS, 3: ROWS, 4: ROWS, 5: ROWS, 6: LEDGER}
GUIDE_STEPS = read_steps(GUIDE)
COLUMNS = "tests/spec/ir/test_dtypes.py::test_the_columns_of_a_float_are_those_of_its_arrays[fp8e3m4]"
#: What the guide promises of the dtype when all steps are done.
WORKS = (
    COLUMNS,
    "tests/backends/test_dtype_tables.py",
    "tests/compiler/decompose/test_small_floats.py::test_r16_the_premises_of_small_floats_hold[fp8e3m4]",
    *(
        f"tests/agreement/test_small_floats_agree.py::{test}[fp8e3m4-{graph}]"
        for test in ("test_a_small_float_agrees", "test_the_exact_interpreter_agrees_on_a_small_float")
        for graph in ("widen", "narrow", "add", "sum", "store-and-load")
    ),
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The ledger that `uops prove` writes once all other steps are done. The pages of other dtypes are not asked again."""
    pytest.importorskip("z3", reason="Z3 is not installed, so no rule can be proved")
    folder = tmp_path_factory.mktemp("proved")
    planted = plant(folder / "package", STEPS)
    file = folder / "ledger.jsonl"
    shutil.copyfile(ROOT / LEDGER, file)
    command = [sys.executable, "-W", "ignore", "-m", "uops", "prove", "--jobs", "1", "--write", "--ledger", str(file)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(planted)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return file.read_text(encoding="utf-8")


def plant_dtype(folder: Path, left_out: int | None, ledger: str) -> Path:
    """Create the package with all steps done but one."""
    return plant(folder, STEPS, left_out, {} if left_out == 6 else {LEDGER: ledger})


def test_the_guide_has_the_steps_that_are_planted() -> None:
    assert [s.number for s in GUIDE_STEPS] == [*STEPS, 6] == [*FILES]


def test_with_all_steps_done_the_dtype_works(tmp_path: Path, ledger: str) -> None:
    passed, output = run_check(plant_dtype(tmp_path / "package", None, ledger), *(s.check for s in GUIDE_STEPS), *WORKS)
    assert passed, output


@pytest.mark.parametrize("step", GUIDE_STEPS, ids=lambda s: str(s.number))
def test_a_step_left_out_is_named_with_its_file(step, tmp_path: Path, ledger: str) -> None:
    passed, output = run_check(plant_dtype(tmp_path / "package", step.number, ledger), step.check)
    assert not passed and FILES[step.number] in output, output
    assert "fp8e3m4" in output or step.number == 6, output


@pytest.mark.parametrize(
    ("column", "wrong"),
    [("8, 3, 4", "8, 4, 3"), ("8, 3, 4", "8, 3, 4, finite_only=True"), (', ml_dtypes_name="float8_e3m4"', ""), ("_e3m4", "_e4m3")],
    ids=["layout", "finite-only", "no-array", "other-array"],
)
def test_a_wrong_column_is_named(column: str, wrong: str, tmp_path: Path) -> None:
    row = ROW.replace(column, wrong)
    assert row != ROW
    passed, output = run_check(plant(tmp_path / "package", {**STEPS, 2: [Insertion(ROWS, BESIDE, row)]}), COLUMNS)
    assert not passed and ROWS in output and "fp8e3m4" in output, output
