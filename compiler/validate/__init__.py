"""Validation of compiled kernels: obligations of each, proved or refuted, never assumed.

Takes: what a lowering gave. Gives: `validate` a `Report` with a `Verdict` per obligation; an obligation that nothing decided counts
as not proved, and `Report.require` raises `Invalid` (an Unsound) with the obligation and its counterexample. Asked for by
`Config.validate` or `UOPS_VALIDATE=1`; it needs Z3 (the extra `prove`), else NoSolver. Importing `uops.compiler` loads
none of this.

Of each kernel, between its body as it was split off (`join`) and its instructions (`linearize`), for all inputs:

- in bounds: every access is inside of its memory where its gate holds (R45);
- width: index arithmetic does not wrap in the machine integers chosen (R08);
- written once: no Store writes an element twice, and no two Stores write one, unless the kernel reads that memory and the body did
  not (R146), or the body does so; where memory holds the index, in the same iteration of the loops around that are done in order
  before and after (R158);
- all written: the instructions write exactly the elements that the body wrote;
- reads agree: they read only elements of each argument that the body read, or what the kernel itself wrote;
- no race: no two threads or lanes meet unordered in an element (R55, R60);
- values: what rules did is replayed from the log, step by step, by rules that the ledger proves; the list holds the instructions of
  its graph, accesses in their own loops; a pass that does neither names the interpreter's check that covers it (`values.COVERED`).

Of a launch, plan: values that are needed at the same time share no bytes, no written argument is passed twice, and Calls keep their
kernels and arguments.

`reader` reads the accesses of a body (`sites`) as sums over loop counters (`terms`); `decide` decides claims by sums, by trying
every point, or by the solver; `writes`, `races`, `plan` and `values` say what has to hold. A refutation carries its values, and
graphs that anybody can evaluate. `certificate` writes down what was proved, and checks it by the solver alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uops.compiler.validate.launch import Report, Validated, taken, validate
    from uops.compiler.validate.model import By, Claim, Counterexample, Invalid, Kind, Verdict

__all__ = ["validate", "taken", "Report", "Validated", "Invalid", "Kind", "By", "Claim", "Counterexample", "Verdict"]

_LAUNCH = ("validate", "taken", "Report", "Validated")

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "launch" if name in _LAUNCH else "model"
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value
