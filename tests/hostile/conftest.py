"""Modules that the hostile tests share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("hostile_formats", "hostile_writers")
