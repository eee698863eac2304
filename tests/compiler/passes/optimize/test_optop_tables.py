"""What the compiler knows of OptOps are tables with an entry per class, which importing them checks."""

import importlib
from pathlib import Path

import pytest

import uops
from uops.spec import optops
from uops.spec.errors import Crash
from uops.spec.optops import OPTOPS, Nolocals

FOLDER = "uops.compiler.passes.optimize"
TABLES = ("schedule.optops", "search.beam", "search.random_schedules")


@pytest.mark.parametrize("module", TABLES)
def test_every_optop_has_an_entry(module: str) -> None:
    """Importing the module raises Crash with the file to edit."""
    assert importlib.import_module(f"{FOLDER}.{module}")


@pytest.mark.parametrize("module", TABLES)
def test_importing_a_table_without_an_optop_fails(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module(f"{FOLDER}.{module}")

    class Unknown(Nolocals):  # type: ignore[misc]
        """An OptOp that no table has."""

    monkeypatch.setattr(optops, "OPTOPS", (*OPTOPS, Unknown))
    path = Path(str(whole.__file__))
    with pytest.raises(Crash, match=f"compiler/passes/optimize/{module.replace('.', '/')}.py: .* lacks Unknown"):
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": whole.__name__})
    assert path.is_relative_to(Path(uops.__path__[0]))
