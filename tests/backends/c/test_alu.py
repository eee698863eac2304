"""The elementwise ops in C: the claims about any machine, on TinyCC."""

import pytest
from alu_claims import *  # noqa: F403 - the claims are tests


@pytest.fixture
def tier() -> str:
    return "tcc"
