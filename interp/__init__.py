"""The meaning of graphs: evaluation with NumPy, op by op.

`run` evaluates a graph on arrays. `evaluate` also gives the value of every node, and `find_executed_ops` the ops that ran. The
meaning of the ops is data: `ops.elementwise.KERNELS` (per op and dtype), `ops.movement.MOVES`, `ops.reduce.FOLDS`, and the
actions of each machine for all that touches memory, scopes or loops. Every module names the rulings that its decisions follow.

Importing this package loads nothing else: the public names load NumPy on first use, and `exact` needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uops.interp.evaluation import evaluate, find_executed_ops, run
    from uops.spec.result import Result

__all__ = ["run", "evaluate", "find_executed_ops", "Result"]


if not TYPE_CHECKING:  # a type checker reads the imports above; __getattr__ would make it accept every name

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module("uops.spec.result" if name == "Result" else f"{__name__}.evaluation")
        value = globals()[name] = getattr(module, name)
        return value
