"""Validation of compiled kernels: obligations of each kernel, proved or refuted, never assumed.

Takes: the graphs and the log of a lowering. Gives: a `ValidationReport` with one `ValidationVerdict` per obligation. An undecided
obligation counts as not proved, and `ValidationReport.require` raises `Invalid` (an Unsound) with the obligation and its
counterexample. `Config.validate` or `UOPS_VALIDATE=1` turns it on. It needs Z3 (the extra `prove`), else it raises NoSolver.
Importing `uops.compiler` loads none of this.

Each kernel is compared between its body (`join`) and its instructions (`linearize`), for all inputs:

- in bounds: every access is inside its memory if its gate holds, and every position in a value is in range (R45: Index).
- width: index arithmetic does not wrap in the machine integers chosen (R08: index values are mathematical integers).
- written once: no Store writes an element twice, and no two Stores write the same one. Exempt are memory that the kernel also
  reads and the body does not (R146: values kept in memory), and elements that the body writes twice as well. If an index is a
  value of memory, this is claimed per iteration of the surrounding loops that are ordered before and after (R158).
- all written: the instructions write exactly the elements that the body writes.
- reads agree: of each argument, they read only elements that the body reads or that the kernel itself writes.
- no race: no two threads or lanes access an element unordered, one of them writing (R55: races, R60: Barrier).
- values: the callified program stores what the tensor graph says, and the body what that program says (`arrays`). The instructions
  store the terms of the body, by their `fingerprints`. The rewrite steps in the log are replayed by rules that the ledger proves.
  The list has the instructions of its graph, with accesses in their own loops. Where that is not decided, `values.COVERED` names
  the interpreter's check that covers the pass.

Each launch has the obligation plan: values that are live at the same time share no bytes, no written argument is passed twice,
and Calls keep their kernels and arguments.

`reader` reads the accesses of a body (`sites`) as sums over loop counters (`terms`). `decide` decides claims by sums, by trying
every point, or by the solver. `writes`, `races`, `plan` and `values` state the claims. A refutation carries its values, and graphs
that an interpreter can evaluate. `certificate` records what was proved, and checks it by the solver alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uops.compiler.validate.launch import KernelValidation, ValidationReport, take_validation_counts, validate
    from uops.compiler.validate.model import (
        ClaimCounterexample,
        DecisionMethod,
        Invalid,
        ObligationKind,
        ValidationClaim,
        ValidationVerdict,
    )

__all__ = [
    "validate",
    "take_validation_counts",
    "ValidationReport",
    "KernelValidation",
    "Invalid",
    "ObligationKind",
    "DecisionMethod",
    "ValidationClaim",
    "ClaimCounterexample",
    "ValidationVerdict",
]

_LAUNCH = ("validate", "take_validation_counts", "ValidationReport", "KernelValidation")

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "launch" if name in _LAUNCH else "model"
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value
