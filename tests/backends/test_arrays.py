"""Arrays that cross processes: object arrays hold ints of any size, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.arrays import decode_arrays, decode_result, encode_arrays, encode_result
from uops.spec.errors import SpecError
from uops.spec.result import Result


@pytest.mark.parametrize(
    "value", [0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, -(2**20000), 2**20000 + 1], ids=lambda n: hex(n)[:20]
)
def test_a_python_int_crosses_whatever_its_size(value: int) -> None:
    assert decode_arrays(*encode_arrays({"n": value})) == {"n": value}
    (back,) = decode_result(*encode_result(Result((value,), {}))).values
    assert back.dtype == (np.int64 if -(2**63) <= value < 2**63 else object)
    assert back.shape == () and back.item() == value


@pytest.mark.parametrize("value", [1.5, "7", True, None])
def test_an_array_of_other_objects_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="v0 is an array of objects that are not all ints"):
        encode_result(Result((np.array([2**70, value], object),), {}))
