"""The exact second interpreter: Python integers and fractions, correctly rounded, for values of at most 64 elements.

Takes: an op on bit patterns (`evaluate_op`) or a graph of the TENSOR dialect (`run`). Gives: per element the canonical bits and
the set of allowed ones. It uses nothing of `uops.interp` outside this folder and no array library, so that it can refute the
first interpreter.
"""

from uops.interp.exact import actions as _actions  # noqa: F401 - fills the table of ops
from uops.interp.exact.answers import AnswerSet, Level
from uops.interp.exact.elementwise import MEANING, evaluate_canonical, evaluate_op
from uops.interp.exact.evaluate import run
from uops.interp.exact.inputs import Bits, Inputs
from uops.interp.exact.numbers.formats import FORMATS, FloatFormat, bits_of, exact_fraction, python_number, round_to
from uops.interp.exact.reduction import reduce_dot, reduce_elements
from uops.interp.exact.values import Array

__all__ = [
    "FORMATS", "MEANING", "AnswerSet", "Array", "Bits", "FloatFormat", "Inputs", "Level", "bits_of", "evaluate_canonical",
    "evaluate_op", "exact_fraction", "python_number", "reduce_dot", "reduce_elements", "round_to", "run",
]  # fmt: skip
