"""Each OptOp is a whole class in the table, and its rulings exist."""

import inspect
import re
from dataclasses import fields

import pytest

from uops.spec import optops
from uops.spec.errors import Crash
from uops.spec.optops import OPTOPS, OptOp, Split, require_every_optop
from uops.spec.rulings import RULINGS

FILE = "spec/optops.py"


def test_every_ruling_that_an_optop_cites_exists() -> None:
    cited = set(re.findall(r"\bR\d\d+\b", inspect.getsource(optops)))
    assert len(cited) > 5
    assert cited <= set(RULINGS), f"spec/rulings.md: state {', '.join(sorted(cited - set(RULINGS)))}"


def test_every_optop_is_a_class_of_its_own() -> None:
    parts = ("row", "weight", "find_illegality", "change_axes", "draw_candidate")
    missing = [f"{o.__name__}.{part}" for o in OPTOPS for part in parts if part not in vars(o)]
    assert not missing, f"{FILE}: write {', '.join(missing)}"
    unnamed = [f"{o.__name__}.{f.name}" for o in OPTOPS for f in fields(o) if f.type not in ("int", "AxisType", "bool")]
    assert not unnamed, f"{FILE}: {', '.join(unnamed)} must be an int, an AxisType or a bool, which the text can hold"
    last = [o.__name__ for o in OPTOPS if any(f.type == "bool" for f in fields(o)[:-1])]
    assert not last, f"{FILE}: {', '.join(last)} must have one flag at most, as its last field"


def test_every_optop_is_listed() -> None:
    classes = {c for c in vars(optops).values() if isinstance(c, type) and issubclass(c, OptOp) and c is not OptOp}
    missing = sorted(c.__name__ for c in classes - set(OPTOPS))
    assert not missing, f"{FILE}: OPTOPS lacks {', '.join(missing)}"
    assert len({o.__name__.lower() for o in OPTOPS}) == len(OPTOPS) == len(classes)


def test_a_table_without_an_optop_names_its_file() -> None:
    with pytest.raises(Crash, match=r"^here\.py: the table of OptOps lacks Padto, Swap"):
        require_every_optop((Split,), "here.py")


@pytest.mark.parametrize(
    "text",
    ["split 0", "split 0 1 SIDEWAYS", "split 0 8 LOOP tpo", "split 0 8 LOOP top top", "padto 0 1 2", "swap 0 a", "noglobals", ""],
)
def test_other_texts_are_no_optops(text: str) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        optops.parse_optop(text)
