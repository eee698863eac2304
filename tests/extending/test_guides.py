"""Every file that a guide names is there."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planting import GUIDES, ROOT

from uops.fuzz.mutants.catalogue import PACKAGE

_FILE = re.compile(r"`((?:tests|spec|interp|compiler|backends|fuzz|docs|bench)/[\w./-]+)(?:::\w+)?`")


@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md")))
def test_the_files_of_a_guide_exist(guide: str) -> None:
    files = _FILE.findall((GUIDES / guide).read_text(encoding="utf-8"))
    assert [f for f in files if not (ROOT / f).exists() and not (PACKAGE / f).exists()] == []
