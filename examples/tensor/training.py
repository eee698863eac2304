"""A small convolutional network learns to tell horizontal stripes from vertical ones."""

import uops
from uops import Tensor
from uops.nn import Adam, parameters

Tensor.manual_seed(3)
model = {
    "convolution": Tensor.randn(4, 1, 3, 3) * 0.3,
    "weight": Tensor.randn(16, 2) * 0.3,
    "bias": Tensor.zeros(2) + 0.0,
}
Tensor.realize(*model.values())


def classify(images: Tensor) -> Tensor:
    x = images.conv2d(model["convolution"]).relu().max_pool2d(3)
    return x.flatten(1).linear(model["weight"], model["bias"])


def draw_batch(n: int) -> tuple[Tensor, Tensor]:
    """Return noisy 8x8 images with stripes, and 1 for each that has vertical ones."""
    labels = Tensor.rand(n) > 0.5
    stripes = (Tensor.arange(8) % 2).cast("float32")
    rows, columns = stripes.reshape(1, 8, 1), stripes.reshape(1, 1, 8)
    images = labels.reshape(n, 1, 1).where(columns, rows) + 0.5 * Tensor.randn(n, 8, 8)
    return images.reshape(n, 1, 8, 8).realize(), labels.cast("int32").realize()


optimizer = Adam(parameters(model), lr=0.02)
losses = []
for _ in range(60):
    images, labels = draw_batch(32)
    loss = -classify(images).log_softmax().gather(1, labels.reshape(32, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step(loss)  # the loss is computed by the program of the step
    losses.append(loss.item())

images, labels = draw_batch(256)
accuracy = classify(images).argmax(1).eq(labels).mean().item()
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}, accuracy {accuracy:.2f}")
assert accuracy > 0.9, accuracy

# The same gradients, of a function
x, y = draw_batch(8)
value, gradient = uops.value_and_grad(lambda m: x.conv2d(m["convolution"]).square().mean())(model)
assert gradient["convolution"].shape == model["convolution"].shape
