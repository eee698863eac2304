"""Libraries that do not get through a program."""

import os
from collections.abc import Callable
from typing import Any

from uops.backends.subjects.numpy_adapter import Numpy
from uops.spec.ir.ops import Op


def _refuse(x: Any) -> Any:
    raise RuntimeError("no floor")


class Refusing(Numpy):
    """NumPy without a floor."""

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        return {**super().list_optional_functions(), "floor": _refuse}


class Adding(Numpy):
    """NumPy whose quotients are one too large."""

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        return super().list_functions() | {Op.DIV: lambda a, b: self.np.add(self.np.true_divide(a, b), 1)}


class Ending(Numpy):
    """NumPy whose floor ends the process."""

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        return {**super().list_optional_functions(), "floor": lambda x: os._exit(9)}
