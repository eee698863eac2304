"""What instructions and functions mean from the start, against Python's integers and libraries."""

import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from uops.compiler import host_functions
from uops.interp import standard_meanings as meanings
from uops.interp.opaque import call_custom_function, find_meaning, use_meanings
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.ops import Op

WORDS = [0, 1, 2, 255, 256, 0x01020304, 0x80000000, 0xFFFFFFFF]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_bits_are_counted_and_bytes_swapped(dtype: type) -> None:
    x = np.array(WORDS, dtype)
    assert meanings.count_bits(x).tolist() == [w.bit_count() for w in WORDS]
    size = x.dtype.itemsize
    assert meanings.swap_bytes(x).tolist() == [int.from_bytes(w.to_bytes(size, "little"), "big") for w in WORDS]
    assert meanings.count_bits(x[5]).dtype == meanings.swap_bytes(x[5]).dtype == dtype


def test_functions_are_those_of_the_libraries() -> None:
    x = np.array([3.0, np.nan, -1.0], np.float32)
    assert meanings.sort(x, x).tolist()[:2] == [-1.0, 3.0]
    out = np.zeros(1, np.uint32)
    assert meanings.crc32(out, x).tolist() == [zlib.crc32(x.tobytes())]
    stream = np.frombuffer(zlib.compress(x.tobytes()) + b"more", np.uint8)
    assert meanings.decode_zlib_stream(np.zeros(3, np.float32), stream).tobytes() == x.tobytes()


@pytest.mark.parametrize("stream", [zlib.compress(b"123"), zlib.compress(b"1234")[:-3], b"no stream"])
def test_a_stream_of_another_length_traps(stream: bytes) -> None:
    with pytest.raises(Trap, match="EncDec"):
        meanings.decode_zlib_stream(np.zeros(4, np.uint8), np.frombuffer(stream, np.uint8))


def test_a_long_stream_is_decoded_no_further_than_the_result() -> None:
    stream = np.frombuffer(zlib.compress(bytes(1 << 26), 9), np.uint8)
    tracemalloc.start()
    with pytest.raises(Trap, match="got more than 4"):
        meanings.decode_zlib_stream(np.zeros(4, np.uint8), stream)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["sort", "crc32"])
@pytest.mark.parametrize("out", [np.zeros(3, np.float64), np.zeros(2, np.float32), np.zeros(2, np.uint32), np.zeros(1, np.int32)])
def test_the_interpreter_and_the_host_refuse_the_same_results(name: str, out: Any) -> None:
    values = np.array([3.0, np.nan, -1.0], np.float32)
    for function in (getattr(meanings, name), host_functions.STANDARD_FUNCTIONS[name]):
        with pytest.raises(Trap, match=name):
            function(out.copy(), values)


def test_a_function_that_gives_other_bytes_than_those_of_bool_traps() -> None:
    stream = np.frombuffer(zlib.compress(b"\2\1"), np.uint8)
    with pytest.raises(Trap, match="EncDec gives has a bool byte other than 0 and 1"):
        call_custom_function("EncDec", [np.zeros(2, bool), stream], 1)


def test_meanings_of_which_one_is_refused_leave_none() -> None:
    mine = {(Op.INS, "mine"): np.negative, (Op.ADD, "mine"): np.negative}
    with pytest.raises(SpecError, match="not opaque"), use_meanings(mine):
        pass
    assert find_meaning(Op.INS, "mine") is None


def test_they_are_registered() -> None:
    assert all(find_meaning(*key) is meaning for key, meaning in meanings.STANDARD_MEANINGS.items())
    assert find_meaning(Op.CUSTOM_FUNCTION, "Graph") is None
