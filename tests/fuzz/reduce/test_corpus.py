"""Elements of corpus files: none is changed without a word, and a check compares all digits."""

from __future__ import annotations

import numpy as np
import pytest

from uops.fuzz.reduce import corpus
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


@pytest.mark.parametrize(("word", "d"), [("0x1ff", dt.uint8), ("0x1ffff", dt.float16), ("0x100", dt.bool_)])
def test_bits_beyond_the_dtype_are_refused(word: str, d: DType) -> None:
    with pytest.raises(ValueError, match="more bits"):
        corpus.parse_element(word, d)
    assert corpus.parse_element("0x1", d) is not None


def test_a_check_of_a_large_integer_compares_all_digits() -> None:
    large = 1 << 70
    assert corpus._element_matches_check(np.array(large, object), str(large))
    assert not corpus._element_matches_check(np.array(large + 1, object), str(large))


def test_bools_are_read_as_words_numbers_and_bits() -> None:
    read = [corpus.parse_element(word, dt.bool_).item() for word in ("True", "False", "1", "0", "0x1")]
    assert read == [True, False, True, False, True]
    with pytest.raises(ValueError, match="True"):
        corpus.parse_element("True", dt.int32)
