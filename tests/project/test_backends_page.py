"""The table of docs/backends.md is what the registry, the declarations and the recorded measurements give."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from uops.backends import registry
from uops.backends.registry import BUILT_IN
from uops.spec.errors import Unsupported


@pytest.fixture(scope="module")
def generator(root: Path) -> ModuleType:
    """`bench/backends.py` as a module."""
    sys.path.insert(0, str(root / "bench"))  # it shares the description of the machine
    try:
        spec = importlib.util.spec_from_file_location("backends_page", root / "bench" / "backends.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(root / "bench"))
    return module


def test_the_page_has_the_generated_table(generator: ModuleType) -> None:
    page, record = generator.PAGE.read_text(), json.loads(generator.RECORD.read_text())
    assert generator.replace_table(page, generator.render_table(record)) == page, "run: python bench/backends.py --write-page"
    assert all(f"| `{name}` | " in page for name in BUILT_IN)


@pytest.mark.parametrize("name", [n for n in BUILT_IN if not BUILT_IN[n].is_subject])
def test_the_record_has_what_a_backend_declares_here(generator: ModuleType, name: str) -> None:
    """But for what differs between machines: threads, memory and the width of vectors."""
    try:
        backend = registry.create_backend(name)
    except Unsupported as e:
        pytest.skip(str(e))
    declared = json.loads(json.dumps(backend.capabilities().to_json()))
    backend.close()
    recorded = json.loads(generator.RECORD.read_text())[name]["declared"]
    of_machine = {"threads", "local_memory", "vector_widths"}
    assert {k: v for k, v in recorded.items() if k not in of_machine} == {k: v for k, v in declared.items() if k not in of_machine}
