"""The Tensor front end with a runner: importing this module installs `uops.compile` as the function that realizes Tensors."""

from uops.backends import api
from uops.compiler.tensor.compiled_calls import jit
from uops.compiler.tensor.realize import use
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import function
from uops.compiler.tensor.transforms import grad, value_and_grad, vjp

__all__ = ["Tensor", "api", "function", "grad", "jit", "use", "value_and_grad", "vjp"]
