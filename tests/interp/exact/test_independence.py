"""The second interpreter shares nothing with the first but the specification."""

import ast
import pathlib
import subprocess
import sys

import pytest

import uops.interp.exact as package

FOLDER = pathlib.Path(package.__file__).parent
ALLOWED = ("uops.spec.", "uops.interp.exact")
STANDARD = {
    "__future__", "collections.abc", "fractions", "functools", "itertools", "math", "operator", "struct", "typing",
}  # fmt: skip


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.name)
def test_imports_are_the_specification_and_the_standard_library(path):
    foreign = [m for m in imported(ast.parse(path.read_text())) if m not in STANDARD and not m.startswith(ALLOWED)]
    assert not foreign


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.name)
def test_no_builtin_float_arithmetic(path):
    """Floats enter and leave as bit patterns: no float literal, no true division by `/` but of Fractions in `reduction`."""
    tree = ast.parse(path.read_text())
    literals = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    divisions = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    assert not literals
    assert not divisions or path.name == "reduction.py"


_WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = sys.modules["ml_dtypes"] = None  # importing them raises ImportError
from uops.interp.exact import run
from uops.spec.ir.text import parse
values = run(parse("%0 = param (2,), slot=0 : f32\\n%1 = add %0, %0"), {"p0": [1.5, -2.0]}).values
print([element.best for element in values[0].elements])
"""


def test_a_graph_is_evaluated_where_numpy_is_not_installed():
    printed = subprocess.run([sys.executable, "-c", _WITHOUT_NUMPY], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str([0x40400000, 0xC0800000])
