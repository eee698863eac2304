"""`@function` captures a Python function as one Function node; what it captures from outside becomes a further argument."""

from uops import Tensor, function, show

scale = Tensor([0.5, 2.0])


@function
def moments(x: Tensor) -> dict[str, Tensor]:
    mean = x.mean(0)
    return {"mean": mean * scale, "var": (x - mean).square().mean(0)}


x = Tensor([[1.0, 2.0], [3.0, 6.0]])
found = moments(x)
print(show(found["mean"].uop))
Tensor.realize(*found.values())  # both by one program
assert found["mean"].tolist() == [1.0, 8.0]
assert found["var"].tolist() == [1.0, 4.0]
