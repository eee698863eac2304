"""Every op that the tables speak of is a member of `Op`. Nothing of the package is imported, as it cannot be without the member."""

import re
from importlib.util import find_spec
from pathlib import Path


def test_every_op_of_a_table_is_a_member() -> None:
    package = find_spec("uops")
    assert package is not None and package.origin is not None
    spec = Path(package.origin).parent / "spec"
    members = set(re.findall(r"^    (\w+) = auto\(\)$", (spec / "ir" / "ops.py").read_text(encoding="utf-8"), re.MULTILINE))
    mentioned = {
        name for path in spec.rglob("*.py") for name in re.findall(r"\bOp\.([A-Z_\d]+)\b", path.read_text(encoding="utf-8"))
    }
    assert len(members) > 100
    assert mentioned <= members, f"spec/ir/ops.py: add the members {mentioned - members}"
