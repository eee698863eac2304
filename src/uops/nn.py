"""Training of models of Tensors: `parameters`, `SGD`, `Adam` and `AdamW`."""

import uops.backends.front  # noqa: F401 (it installs the function that realizes Tensors)
from uops.compiler.tensor.nn import SGD, Adam, AdamW, Optimizer, parameters

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "parameters"]
