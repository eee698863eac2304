"""Random programs of views, arithmetic and assignments agree with a model that knows no graph.

The model keeps, per Tensor, an array and the positions of its elements in the Tensor it was first made from. An assignment writes
these positions there and refreshes the Tensors between; every other Tensor keeps what it had.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from uops import Tensor


@dataclass
class Model:
    """A Tensor, its array, and if it is a view: what it was made from, and where its elements lie in the first of the chain."""

    tensor: Tensor
    array: Any
    parent: Model | None = None
    places: Any = None

    def chain(self) -> list[Model]:
        """From the first Tensor to this one."""
        return [*(self.parent.chain() if self.parent else []), self]

    def positions(self) -> Any:
        return np.arange(self.array.size).reshape(self.array.shape) if self.places is None else self.places

    def view(self, move: Any) -> Model:
        return Model(move(self.tensor), move(self.array).copy(), self, move(self.positions()))

    def assign(self, key: Any, value: Any) -> None:
        self.tensor[key] = value
        first, *between = self.chain()
        first.array = first.array.copy()
        first.array.reshape(-1)[self.positions()[key]] = value
        for m in between:
            m.array = first.array.reshape(-1)[m.places]


def key(r: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index."""
    out: list[Any] = []
    for n in shape:
        lo, hi = sorted((r.randint(0, n), r.randint(0, n)))
        choices = [slice(None), slice(lo, hi), slice(None, None, 2), slice(None, None, -1)]
        out.append(r.choice(choices + ([r.randrange(-n, n)] if n else [])))
    return tuple(out)


def move(r: random.Random, shape: tuple[int, ...]) -> Any:
    """A function that views an array or a Tensor of this shape."""
    total = int(np.prod(shape))
    order = r.sample(range(len(shape)), len(shape))
    sizes = [s for s in ((total,), (1, total), (2, total // 2), (total // 3, 3)) if int(np.prod(s)) == total]
    size, k = r.choice(sizes), key(r, shape)
    views = [
        lambda v: v.reshape(size),
        lambda v: v.permute(*order) if isinstance(v, Tensor) else v.transpose(order),
        lambda v: v[k],
    ]
    return r.choice(views)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_agrees_with_its_model(seed: int, agree: Any) -> None:
    r, rng = random.Random(seed), np.random.default_rng(seed)
    data = rng.integers(-50, 50, (3, 4, 2)).astype(np.int32)
    models = [Model(Tensor(data), data)]
    for _ in range(9):
        m = r.choice(models)
        step = r.random()
        if step < 0.4:
            models.append(m.view(move(r, m.array.shape)))
        elif step < 0.6:
            models.append(Model(m.tensor * 3 + 1, m.array * 3 + 1))
        elif step < 0.9:
            k = key(r, m.array.shape)
            whole = r.random() < 0.5
            m.assign(k, r.randint(-9, 9) if whole else rng.integers(-9, 9, m.array[k].shape).astype(np.int32))
        else:
            m.tensor.realize()
    agree([m.tensor for m in models], [m.array for m in models])
