"""Functions of the host that every target has: what some names of a CustomFunction mean where nothing else is registered.

Takes: flat arrays, of which the first is written. Spec: CustomFunction; R169 (functions and programs).

`EncDec` is the kind of codecs of the second document. On a host it decodes what zlib has encoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.spec.errors import Trap


def sort(out: Any, values: Any) -> None:
    """Write the values in ascending order, NaNs last. Raises Trap unless both arrays have one dtype and one length."""
    if out.dtype != values.dtype or out.shape != values.shape:
        raise Trap(f"sort: expected {values.dtype} of shape {values.shape} for its result, got {out.dtype} of shape {out.shape}")
    out[:] = values
    out.sort()


def crc32(out: Any, data: Any) -> None:
    """Write the CRC-32 of the bytes of an array to the one element of a uint32 array. Raises Trap for another result."""
    if out.dtype != np.uint32 or out.shape != (1,):
        raise Trap(f"crc32: expected one uint32 for its result, got {out.dtype} of shape {out.shape}")
    out[0] = zlib.crc32(data.view(np.uint8))


def decode_zlib_stream(out: Any, encoded: Any) -> None:
    """Decode a zlib stream to exactly the bytes of an array.

    Raises Trap for a malformed stream, and for one of another length. What follows the stream is ignored.
    """
    decoder = zlib.decompressobj()
    try:
        data = decoder.decompress(encoded.view(np.uint8), out.nbytes + 1)  # one byte more tells a longer stream
    except zlib.error as e:
        raise Trap(f"EncDec: the stream cannot be decoded: {e}") from e
    if not decoder.eof or len(data) != out.nbytes:
        raise Trap(f"EncDec: expected a stream of {out.nbytes} bytes, got {len(data) if decoder.eof else 'another length'}")
    out.view(np.uint8)[:] = np.frombuffer(data, np.uint8)


#: Name of a CustomFunction -> its function.
STANDARD_FUNCTIONS: dict[str, Callable[..., None]] = {"sort": sort, "crc32": crc32, "EncDec": decode_zlib_stream}
