"""Files and texts that somebody else may have made: every reader, every writer and every printer of ours goes through here.

`reader` takes bytes, text and JSON from a path within a size, and never waits for a pipe or a device. `writer` replaces a file
whole or leaves it as it was. `form` holds values of JSON against a table. `sealed` ties stored bytes to the question that they
answer. `printable` makes text safe for a terminal and for a file in UTF-8, and `quote_name` a name in a
message. Nothing here imports anything of ours but the errors.
"""

from uops.spec.untrusted.form import Either, misfit
from uops.spec.untrusted.printable import printable, quote_name
from uops.spec.untrusted.reader import BadFile, describe_path, open_file, parse_json, read_bytes, read_json, read_text
from uops.spec.untrusted.sealed import Damaged, seal, unseal
from uops.spec.untrusted.writer import SCRATCH, write_bytes, write_text

__all__ = [
    "BadFile", "open_file", "read_bytes", "read_text", "read_json", "parse_json", "describe_path",
    "SCRATCH", "write_bytes", "write_text",
    "Damaged", "seal", "unseal",
    "Either", "misfit",
    "printable", "quote_name",
]  # fmt: skip
