"""The exact second interpreter: Python integers and fractions, correctly rounded, for values of at most 64 elements.

Takes: an op on bit patterns (`evaluate_op`) or a graph of the TENSOR dialect (`run`). Gives: per element the canonical bits and the
set of allowed ones. Uses nothing of `uops.interp` outside this folder and no array library, so that it can refute it.
"""

from uops.interp.exact import actions as _handlers  # noqa: F401 - fills the table of ops
from uops.interp.exact.answers import Answer, Level
from uops.interp.exact.elementwise import MEANING, canonical, evaluate_op
from uops.interp.exact.evaluate import run
from uops.interp.exact.inputs import Bits, Inputs
from uops.interp.exact.numbers.formats import FORMATS, Format, bits_of, fraction, number, round_to
from uops.interp.exact.reduction import dot, reduce_elements
from uops.interp.exact.values import Array

__all__ = [
    "FORMATS", "MEANING", "Answer", "Array", "Bits", "Format", "Inputs", "Level", "bits_of", "canonical", "dot", "evaluate_op",
    "fraction", "number", "reduce_elements", "round_to", "run",
]  # fmt: skip
