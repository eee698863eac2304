"""The meaning of graphs: evaluation with NumPy, op by op.

`run` evaluates a graph on arrays. `evaluate` also gives the value of every node, and `find_executed_ops` the ops that ran. The
meaning of the ops is data: `ops.elementwise.KERNELS` (per op and dtype), `ops.movement.MOVES`, `ops.reduce.FOLDS`, and the
actions of each machine for all that touches memory, scopes or loops. Every module names the rulings that its decisions follow.
"""

from uops.interp.run import evaluate, find_executed_ops, run
from uops.spec.result import Result

__all__ = ["run", "evaluate", "find_executed_ops", "Result"]
