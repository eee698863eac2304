"""What the instructions and functions that every target of ours has mean, written independently of them.

Takes: values of the sources of an Ins, or the flat arguments of a CustomFunction's Call. Gives: the value, or the new contents of
the first argument. `interp/opaque.py` registers them. Spec: Ins, CustomFunction; R168 (Ins and Custom on a target), R169 (functions
and programs).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.spec.errors import Trap
from uops.spec.ir.ops import Op

#: The polynomial of CRC-32 (ISO-HDLC), lowest bit first.
_CRC_POLYNOMIAL = 0xEDB88320


def count_bits(x: Any) -> Any:
    """Return the number of bits that are 1 in each element, in the dtype of the elements."""
    x = np.asarray(x)
    count = np.zeros_like(x)
    for k in range(8 * x.dtype.itemsize):
        count = count + ((x >> x.dtype.type(k)) & x.dtype.type(1))
    return count


def swap_bytes(x: Any) -> Any:
    """Return each element with its bytes in the opposite order."""
    return np.asarray(x).byteswap()


def sort(out_like: Any, values: Any) -> Any:
    """Return the values in ascending order, NaNs last. Raises Trap unless the result has their dtype and length."""
    if (out_like.dtype, out_like.size) != (values.dtype, values.size):
        raise Trap(f"sort: {values.size} elements of {values.dtype} do not fit {out_like.size} of {out_like.dtype}")
    return np.sort(values)


def crc32(out_like: Any, data: Any) -> Any:
    """Return the CRC-32 of the bytes of an array, bit by bit. Raises Trap unless the result is one uint32."""
    if (out_like.dtype, out_like.size) != (np.dtype(np.uint32), 1):
        raise Trap(f"crc32: the result is one uint32, not {out_like.size} elements of {out_like.dtype}")
    register = 0xFFFFFFFF
    for byte in data.tobytes():
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (_CRC_POLYNOMIAL if register & 1 else 0)
    return np.full(out_like.shape, register ^ 0xFFFFFFFF, out_like.dtype)


def decode_zlib_stream(out_like: Any, encoded: Any) -> Any:
    """Return the bytes of the zlib stream that `encoded` begins with. Raises Trap unless it is as long as `out_like`."""
    try:
        decoder = zlib.decompressobj()
        data = decoder.decompress(encoded.tobytes(), max_length=out_like.nbytes + 1)
    except zlib.error as e:
        raise Trap(f"EncDec: the stream cannot be decoded: {e}") from e
    if not decoder.eof or len(data) != out_like.nbytes:
        size = f"more than {out_like.nbytes}" if len(data) > out_like.nbytes else len(data)
        raise Trap(f"EncDec: expected a whole stream of {out_like.nbytes} bytes, got {size}")
    return np.frombuffer(data, out_like.dtype)


#: (op, name) -> its meaning.
STANDARD_MEANINGS: dict[tuple[Op, str], Callable[..., Any]] = {
    (Op.INS, "popcnt"): count_bits,
    (Op.INS, "bswap"): swap_bytes,
    (Op.CUSTOM_FUNCTION, "sort"): sort,
    (Op.CUSTOM_FUNCTION, "crc32"): crc32,
    (Op.CUSTOM_FUNCTION, "EncDec"): decode_zlib_stream,
}
