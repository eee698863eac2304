"""Untrusted files and texts: the readers, writers and printers that the whole package uses.

`reader` reads bytes, text and JSON of a limited size from a path, and never blocks on a pipe or a device. `writer` replaces a file
atomically. `form` checks JSON values against a form. `sealed` ties stored bytes to the key that they were stored for. `printable`
escapes text for terminals and UTF-8 files, and names in messages. This package imports nothing else of uops but the errors.
"""

from uops.spec.untrusted.form import Either, find_misfit
from uops.spec.untrusted.printable import escape_to_one_line, escape_unprintable
from uops.spec.untrusted.reader import BadFile, describe_path, open_regular_file, parse_json, read_bytes, read_json, read_text
from uops.spec.untrusted.sealed import SealMismatch, seal, unseal
from uops.spec.untrusted.writer import SCRATCH, write_bytes, write_text

__all__ = [
    "BadFile", "open_regular_file", "read_bytes", "read_text", "read_json", "parse_json", "describe_path",
    "SCRATCH", "write_bytes", "write_text",
    "SealMismatch", "seal", "unseal",
    "Either", "find_misfit",
    "escape_unprintable", "escape_to_one_line",
]  # fmt: skip
