"""Kernels run by both machines and under several schedules, which must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir.node import UOp
from uops.spec.result import Result

Agree = Callable[..., Result]


def _bits(a: Any) -> Any:
    return np.ascontiguousarray(a).view(np.uint8)


def _same(x: Result, y: Result) -> None:
    assert x.buffers.keys() == y.buffers.keys()
    for k in x.buffers:
        assert x.buffers[k].dtype == y.buffers[k].dtype
        assert np.array_equal(_bits(x.buffers[k]), _bits(y.buffers[k])), k
    for a, b in zip(x.values, y.values, strict=True):
        assert np.array_equal(_bits(a), _bits(b))


@pytest.fixture
def agree() -> Agree:
    """Run lane by lane, by whatever machine is fastest, and under `schedules` seeds; the results are one."""

    def check(root: UOp, inputs: Mapping[str, Any] | None = None, schedules: int = 5) -> Result:
        inputs = inputs or {}
        found = run(root, inputs, lanes=True)
        _same(found, run(root, inputs))
        for seed in range(schedules):
            _same(found, run(root, inputs, schedule=seed))
        return found

    return check


@pytest.fixture
def fault() -> Callable[..., str]:
    """The message of the Trap that a kernel ends in, whoever runs it."""

    def check(root: UOp, inputs: Mapping[str, Any] | None = None, **options: Any) -> str:
        inputs = inputs or {}
        with pytest.raises(Trap):
            run(root, inputs)
        with pytest.raises(Trap) as found:
            run(root, inputs, lanes=True, **options)
        return str(found.value)

    return check
