"""What a graph of the second document means: evaluation lane by lane, op by op.

`run` evaluates every op of the BESTIARY dialect as the document has it, without lowering it first; `is_bestiary` says whether a
graph has one. A scalar under open Ranges is a function of their values; `plan` says which, `machine` evaluates it, `lanes` runs
what runs together.
"""

from uops.interp.bestiary.run import is_bestiary, run

__all__ = ["run", "is_bestiary"]
