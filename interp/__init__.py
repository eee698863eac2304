"""What a graph means: evaluation with NumPy, op by op.

`run` evaluates a graph of the TENSOR dialect on arrays, `evaluate` also gives the value of every node, `executed` the ops it ran.
The meaning of the ops is data: `elementwise.KERNELS` (per op and dtype), `movement.MOVES`, `reduce.reduce`, and the actions of
`machine` for everything that touches memory or scopes. Every module names the rulings that its decisions follow.
"""

from uops.interp.run import evaluate, executed, run
from uops.spec.result import Result

__all__ = ["run", "evaluate", "executed", "Result"]
