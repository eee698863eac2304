"""R65 (rank): a value has at most 64 axes, and whoever would make more is told so, in one sentence, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import MOST_AXES
from uops.spec.verify.verifier import find_broken_claims

MANY = (2,) + (1,) * MOST_AXES
X = {"p0": np.ones(2, np.float32)}
TEXT = f"%0 = param (2), slot=0 : f32\n%1 = reshape %0, (2{', 1' * MOST_AXES})\n%2 = reshape %1, (2)\n"


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1.0


WAYS: dict[str, Callable[[], Any]] = {
    "run": lambda: uops.run(uops.parse(TEXT), X),
    "llvm": lambda: uops.compile(uops.parse(TEXT), "llvm")(X),
    "interp": lambda: uops.compile(uops.parse(TEXT), "interp")(X),
    "verify": lambda: uops.verify(uops.parse(TEXT)),
    "build": lambda: B.reshape(B.param(0, (2,), dt.float32), MANY).shape,
    "param": lambda: B.param(0, MANY, dt.float32).shape,
    "reshape": lambda: Tensor([1.0, 2.0]).reshape(MANY),
    "ones": lambda: Tensor.ones(MANY).numpy(),
    "rand": lambda: Tensor.rand(*MANY).numpy(),
    "unsqueeze": lambda: Tensor(np.ones((1,) * MOST_AXES, np.float32)).unsqueeze(0),
    "lists": lambda: Tensor(nested(MOST_AXES + 1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_value_of_65_axes_is_refused_with_the_ruling(way: str) -> None:
    with pytest.raises(SpecError, match=r"64.*\(R65\)"):
        WAYS[way]()


def test_the_verifier_names_the_node_and_its_claim() -> None:
    (found,) = find_broken_claims(uops.parse(TEXT))
    assert found.claim.id == "RESHAPE.C1" and "a shape of 65 axes" in found.message


@pytest.mark.parametrize("backend", ["interp", "llvm"])
def test_64_axes_are_supported(backend: str) -> None:
    graph = B.reshape(B.param(0, (2,), dt.float32), MANY[:-1])
    assert uops.compile(B.add(graph, graph), backend)(X).values[0].shape == MANY[:-1]
    assert Tensor(nested(MOST_AXES)).shape == (1,) * MOST_AXES
