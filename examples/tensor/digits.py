"""A small convolutional network on random images, forward, and its prediction."""

from uops import Tensor

Tensor.manual_seed(7)
images = Tensor.rand(2, 1, 12, 12)
conv1, conv2, last = Tensor.randn(4, 1, 3, 3) * 0.3, Tensor.randn(8, 4, 3, 3) * 0.2, Tensor.randn(72, 10) * 0.1


def classify(x: Tensor) -> Tensor:
    x = x.conv2d(conv1, padding=1).relu().max_pool2d(2)
    x = x.conv2d(conv2, padding=1).gelu().max_pool2d(2)
    return x.flatten(1).linear(last).softmax()


chances = classify(images)
best = chances.argmax(1)
Tensor.realize(chances, best)
assert abs(float(chances.sum()) - 2) < 1e-5
assert all(chances.numpy()[k, c] == chances.numpy()[k].max() for k, c in enumerate(best.tolist()))
print(best.tolist(), chances.max(1).tolist())
