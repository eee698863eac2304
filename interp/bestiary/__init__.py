"""The meaning of graphs of the bestiary, the second document: evaluation lane by lane, op by op.

`run` evaluates every op of the BESTIARY dialect as the document has it, without lowering it first. A scalar under open Ranges is
a function of their values: `plan` says which, `machine` evaluates it, and `lanes` runs lanes side by side. Nothing here shares
loops or memory with `interp.kernel`, so that `legalize` can be held to it.
"""

from uops.interp.bestiary.run import evaluate, run

__all__ = ["evaluate", "run"]
