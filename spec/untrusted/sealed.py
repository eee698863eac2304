"""Bytes that are tied to the question they answer.

A sealed text is a header line and the payload:

    uops KIND SCHEMA SHA-256

The digest covers kind, schema, key and payload, each with its length. So an answer under another question's name, of another
format, cut off, or with one bit changed, is told apart from the one that was stored. It is no signature: who may write the file
may seal anything.
"""

from __future__ import annotations

import hashlib

from uops.spec.errors import UopsError


class Damaged(UopsError, ValueError):
    """Sealed bytes are not the ones that were stored for this kind, schema and key."""


def seal(kind: str, schema: int, key: str | bytes, payload: bytes) -> bytes:
    """Return `payload` behind a header that ties it to `kind`, `schema` and `key`."""
    return f"uops {kind} {schema} {_digest(kind, schema, key, payload)}\n".encode() + payload


def unseal(kind: str, schema: int, key: str | bytes, data: bytes) -> bytes:
    """Return the payload that was sealed for exactly this kind, schema and key. Raises Damaged for anything else."""
    header, newline, payload = data.partition(b"\n")
    if header + newline != f"uops {kind} {schema} {_digest(kind, schema, key, payload)}\n".encode():
        raise Damaged(f"not the {kind} (format {schema}) that was stored under this key")
    return payload


def _digest(kind: str, schema: int, key: str | bytes, payload: bytes) -> str:
    digest = hashlib.sha256()
    for part in (kind.encode(), str(schema).encode(), key.encode() if isinstance(key, str) else key, payload):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
