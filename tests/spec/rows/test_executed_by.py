"""What executes each row: every name resolves, and those of the interpreter's tables are all of their keys."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from uops.spec.ir.ops import Op
from uops.spec.rows.executors import COMPILER_TABLES, INTERPRETER_TABLES, name_functions_that_execute_op
from uops.spec.rows.named.base import ExecutedBy, RowSubject
from uops.spec.rows.rows import NAMED_ROWS, ROWS, to_json

EXECUTED_BY = {row.id: name_functions_that_execute_op(op) for op, row in ROWS.items()} | {
    id: row.executed_by for id, row in NAMED_ROWS.items()
}
_NAME = re.compile(r"(?P<module>[\w.]+):(?P<path>[A-Za-z_][\w.]*)(?:\[(?P<key>\w+)\])?")


def _resolve(name: str) -> Any:
    """Return what `module:attribute` or `module:TABLE[KEY]` names; a key is an enum member's or a class' name."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    found = import_module(match["module"])
    for part in match["path"].split("."):
        found = getattr(found, part)
    if match["key"] is None:
        return found
    by_name = {getattr(key, "name", None) or key.__name__: value for key, value in found.items()}
    return by_name[match["key"]]


@pytest.mark.parametrize("id", EXECUTED_BY)
def test_every_name_resolves(id):
    for name in (*EXECUTED_BY[id].interp, *EXECUTED_BY[id].compiler):
        assert name.startswith(("uops.interp.", "uops.compiler.", "uops.backends.", "uops.spec.")), name
        executor = _resolve(name)
        assert name.endswith("]") or isinstance(executor, Callable | dict), name


@pytest.mark.parametrize("id", EXECUTED_BY)
def test_each_side_has_a_name_or_a_reason_why_not(id):
    executed_by = EXECUTED_BY[id]
    assert bool(executed_by.missing) == (not executed_by.interp or not executed_by.compiler)
    assert all(n.startswith(("uops.interp.", "uops.spec.")) for n in executed_by.interp)
    assert all(n.startswith(("uops.compiler.", "uops.backends.", "uops.spec.")) for n in executed_by.compiler)
    assert len(set(executed_by.interp)) == len(executed_by.interp)
    assert len(set(executed_by.compiler)) == len(executed_by.compiler)


def test_the_interpreter_executes_every_row_but_steps_of_the_front_end_that_it_never_sees():
    assert [id for id, e in EXECUTED_BY.items() if not e.interp] == ["Function/ExtractInputs", "Function/Run"]


@pytest.mark.parametrize("name", ["uops.spec.rows.rows:nothing", "uops.spec.nowhere:f", "uops.interp.bestiary.plan:KINDS[NONE]"])
def test_a_wrong_name_does_not_resolve(name):
    with pytest.raises((AttributeError, ImportError, KeyError)):
        _resolve(name)


@pytest.mark.parametrize("table", INTERPRETER_TABLES)
def test_the_interpreters_tables_have_the_ops_that_name_them(table):
    """An op that a table gains or loses changes what the op's row says."""
    keys = set(_resolve(table))
    assert keys >= INTERPRETER_TABLES[table]
    kernel_only = set(Op) - set(_resolve("uops.interp.tensor.actions:MEANING"))
    assert (keys & kernel_only if table.endswith("_COMPILERS") else keys) == INTERPRETER_TABLES[table]


@pytest.mark.parametrize("table", COMPILER_TABLES)
def test_the_compilers_tables_have_the_ops_that_name_them(table):
    assert set(_resolve(table)) >= COMPILER_TABLES[table]


def test_json_says_what_executes_each_row_and_what_its_cells_judge():
    data = to_json()
    for row in (*data["ops"], *data["rows"]):
        assert row["executed_by"] == EXECUTED_BY[row["id"]].to_json()
        assert row["subject"] in {s.value for s in RowSubject}
    assert {r["subject"] for r in data["ops"]} == {"backend"}
    assert ExecutedBy(("m:f",)).to_json() == {"interp": ["m:f"], "compiler": [], "missing": None}
