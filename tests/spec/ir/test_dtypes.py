"""Every dtype of the rulings is a row with its columns, a place in the list and a place in the promotion lattice."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, promote
from uops.spec.rulings import RULINGS

ROWS = "spec/ir/dtypes.py"
VALUED = (*dt.STORABLE, dt.index)


def ruled_names() -> set[str]:
    """The names of R24: `(u)int8..64` stands for eight dtypes, a remark in parentheses for none."""
    listed = RULINGS["R24"].text.partition(";")[0].replace("(u)int8..64", ", ".join(d.name for d in dt.INTS))
    return {re.sub(r" \(.*\)", "", name).strip() for name in listed.split(",")}


def defined_dtypes() -> list[DType]:
    return [d for d in vars(dt).values() if isinstance(d, DType)]


def test_the_rulings_name_every_dtype() -> None:
    unruled = [d.name for d in defined_dtypes() if not {d.name, d.short} & ruled_names()]
    assert not unruled, f"spec/rulings.md: R24 does not name {unruled}"


def test_every_dtype_of_the_rulings_has_a_row() -> None:
    missing = ruled_names() - {name for d in defined_dtypes() for name in (d.name, d.short)}
    assert not missing, f"{ROWS}: no row has the name or short name of {sorted(missing)}, which R24 lists"


def test_every_row_is_listed() -> None:
    unlisted = [d.name for d in defined_dtypes() if d not in dt.ALL]
    assert not unlisted, f"{ROWS}: ALL lacks {unlisted}"


def test_names_and_short_names_are_unique() -> None:
    assert len(dt.DTYPES) == len(dt.SHORT) == len(dt.ALL) == len(set(dt.ALL))


def test_the_promotion_lattice_has_every_dtype() -> None:
    missing = [d.name for d in VALUED if d not in dt._NEXT_WIDER]
    assert not missing, f"{ROWS}: _NEXT_WIDER does not say which dtypes are wider than {missing}"


def test_integers_promote_to_every_float() -> None:
    for d, f in itertools.product((dt.bool_, *dt.INTS, dt.index), dt.FLOATS):
        assert promote(d, f) is f, f"{ROWS}: no edge of _NEXT_WIDER leads from {d} to {f} without another float"


def test_every_wider_float_has_all_numbers() -> None:
    for d in dt.FLOATS:
        for f in dt._NEXT_WIDER[d]:
            holds = d.man_bits <= f.man_bits and d.exp_bits <= f.exp_bits and d.has_inf <= f.has_inf
            assert holds, f"{ROWS}: _NEXT_WIDER leads from {d} to {f}, which lacks some of its values"


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_the_columns_of_a_float_are_those_of_its_arrays(d: DType) -> None:
    library = ml_dtypes if d.ml_dtypes_name else np
    assert hasattr(library, d.array_name), (
        f"{ROWS}: {library.__name__} has no {d.array_name}; ml_dtypes_name of {d} names its arrays"
    )
    info = ml_dtypes.finfo(np.dtype(getattr(library, d.array_name)))
    got = (d.bits, d.exp_bits, d.man_bits, d.max_finite, d.smallest_normal, d.smallest_subnormal)
    want = (info.bits, info.nexp, info.nmant, *map(float, (info.max, info.smallest_normal, info.smallest_subnormal)))
    assert got == want, f"{ROWS}: the columns of {d} give {got}, the dtype of its arrays {want}"
    with np.errstate(over="ignore"):
        assert d.has_inf == np.isinf(np.float32(np.inf).astype(info.dtype)), f"{ROWS}: finite_only of {d} is not that of its arrays"


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_derived_columns_of_a_float(d: DType) -> None:
    assert d.smallest_normal == 2.0**d.min_exponent
    assert d.smallest_subnormal == d.smallest_normal * 2.0**-d.man_bits
    assert d.unit_roundoff == 2.0 ** -(d.man_bits + 1)
    assert (d.min, d.max) == ((-np.inf, np.inf) if d.has_inf else (-d.max_finite, d.max_finite))
    assert d.may_saturate == (d.bits == 8)
    assert d.wide is (dt.float64 if d is dt.float64 else dt.float32)


def test_values_of_columns_that_the_rulings_state() -> None:
    assert [d.name for d in dt.FLOATS if d.finite_only and d.max_finite == 448.0 == -d.min] == ["fp8e4m3"]  # R15, R32
    assert dt.fp8e5m2.max_finite == 57344.0 and dt.float16.max_finite == 65504.0


def test_storage_and_words() -> None:
    assert [d for d in dt.ALL if d.storage is not d] == [dt.index] and dt.index.storage is dt.int64
    for d in dt.STORABLE:
        assert d.word.bits == d.bits and d.word.kind is dt.uint8.kind
