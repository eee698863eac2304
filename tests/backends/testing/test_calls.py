"""Inputs in other forms have the same values."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.testing.calls import InvocationMode, arrange_inputs

FORMS = [m for m in InvocationMode if m not in (InvocationMode.BROADCAST, InvocationMode.OVERLAPPING)]


@pytest.mark.parametrize("mode", FORMS)
def test_index_values_beyond_int64_are_arranged(mode: InvocationMode) -> None:
    given = np.array([[1, 1 << 70], [-3, 4]], object)
    assert arrange_inputs({"p0": given}, mode)["p0"].tolist() == given.tolist()
