"""Tables by dtype that are written by hand have every dtype in which a target computes."""

from collections.abc import Collection, Iterable

import pytest

from uops.backends.cstyle import language
from uops.backends.llvm import types
from uops.compiler.decompose import NATIVE, WIDE, exp2, log2
from uops.compiler.tensor.methods import elementwise
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

COMPUTED = (*NATIVE, dt.index)
#: File of the package, name of the table, the table, the dtypes that it must have.
TABLES: tuple[tuple[str, str, Collection[DType], Collection[DType]], ...] = (
    ("backends/llvm/types.py", "VALUE", types.VALUE, COMPUTED),
    ("backends/cstyle/language.py", "ALIAS", language.ALIAS, COMPUTED),
    ("backends/cstyle/language.py", "_SUFFIX", language._SUFFIX, (*dt.INTS, dt.index)),
    ("compiler/decompose/exp2.py", "EXP2", exp2.EXP2, WIDE),
    ("compiler/decompose/log2.py", "LOG2", log2.LOG2, WIDE),
    ("compiler/tensor/methods/elementwise.py", "_LAMBERT_TERMS", elementwise._LAMBERT_TERMS, WIDE),
)


def describe_gaps(tables: Iterable[tuple[str, str, Collection[DType], Collection[DType]]]) -> list[str]:
    return [
        f"{file}: {name} lacks {', '.join(d.name for d in sorted(missing, key=dt.ALL.index))}"
        for file, name, table, required in tables
        if (missing := set(required) - set(table))
    ]


def test_tables_have_every_dtype_that_a_target_computes_in() -> None:
    gaps = describe_gaps(TABLES)
    assert not gaps, "\n".join(gaps)


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row[1])
def test_a_gap_is_named_with_its_file(row: tuple[str, str, Collection[DType], Collection[DType]]) -> None:
    file, name, table, required = row
    for d in required:
        assert describe_gaps([(file, name, set(table) - {d}, required)]) == [f"{file}: {name} lacks {d}"]
