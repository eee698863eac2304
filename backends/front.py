"""The Tensor front end with a runner: importing this module installs `uops.compile` as the function that realizes Tensors."""

from uops.backends import api
from uops.compiler.tensor.realize import use
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import function

__all__ = ["Tensor", "api", "function", "use"]
