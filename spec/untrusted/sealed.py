"""Sealed bytes: stored payloads that are tied to the key they were stored for.

Sealed bytes are a header line and the payload:

    uops KIND SCHEMA SHA-256

The digest covers kind, schema, key and payload, each with its length. It detects a payload that was stored for another key or in
another format, is truncated, or has a flipped bit. It is no signature: whoever may write the file may seal anything.
"""

from __future__ import annotations

import hashlib

from uops.spec.errors import UopsError


class SealMismatch(UopsError, ValueError):
    """Sealed bytes that are not the ones stored for this kind, schema and key."""


def seal(kind: str, schema: int, key: str | bytes, payload: bytes) -> bytes:
    """Return `payload` behind a header that ties it to `kind`, `schema` and `key`."""
    return f"uops {kind} {schema} {_digest_sealed_entry(kind, schema, key, payload)}\n".encode() + payload


def unseal(kind: str, schema: int, key: str | bytes, data: bytes) -> bytes:
    """Return the payload that was sealed for this kind, schema and key; raises SealMismatch for any other bytes."""
    header, newline, payload = data.partition(b"\n")
    if header + newline != f"uops {kind} {schema} {_digest_sealed_entry(kind, schema, key, payload)}\n".encode():
        raise SealMismatch(f"not the {kind} (format {schema}) that was stored under this key")
    return payload


def _digest_sealed_entry(kind: str, schema: int, key: str | bytes, payload: bytes) -> str:
    digest = hashlib.sha256()
    for part in (kind.encode(), str(schema).encode(), key.encode() if isinstance(key, str) else key, payload):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
