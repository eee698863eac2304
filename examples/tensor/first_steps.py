"""Lazy values: nothing is computed before a value is asked for, and one structure is compiled once."""

import numpy as np

import uops
from uops import Tensor, use
from uops.compiler.tensor import capture

x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
w = Tensor([[1.0, 0.0], [0.5, 2.0], [0.0, -1.0]])
y = (x @ w).relu() + 1
print(y)  # <Tensor (2, 2) float32 lazy>
print(y.numpy())

# The same graph, in the interpreter that defines what it means.
graph, inputs = capture((x @ w).relu() + 1)
assert np.array_equal(uops.run(graph, inputs).values[0], y.numpy())
with use("interp"):
    assert np.array_equal(((x @ w).relu() + 1).numpy(), y.numpy())

# Indexing and assignment are NumPy's; nodes made before an assignment keep their values.
before = x * 10
x[0, 1:] = -1
x[:, ::2] = x[:, ::2] + 100
assert x.tolist() == [[100.0, -1.0, 99.0], [103.0, 4.0, 105.0]]
assert before.tolist() == [[0.0, 10.0, 20.0], [30.0, 40.0, 50.0]]

# Of several values for one element the last stays. An index out of range is an IndexError once the value is asked for.
x[:, Tensor([0, 0])] = Tensor([1.0, 2.0])
assert x[:, 0].tolist() == [2.0, 2.0]
rows = x[Tensor([1, 2])]
try:
    rows.numpy()
except IndexError as e:
    print(e)  # Tensor.__getitem__: index 2 at 1 is out of range for axis 0 of extent 2: expected -2 to 1 (R163)

# Who knows that all are in range may leave the check out: for one method, one realization, or a block.
picked = x.take(Tensor([1, -1]), axis=0, unchecked=True)
assert x[Tensor([1, -1])].realize(unchecked=True).tolist() == picked.tolist()
with use(unchecked=True):
    assert x[Tensor([1, -1]) * 1].tolist() == picked.tolist()
