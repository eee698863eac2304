"""The exact second interpreter: Python integers and fractions, correctly rounded, for values of at most 64 elements.

Takes: an op on bit patterns (`evaluate_op`) or a graph of the TENSOR dialect (`run`). Gives: per element the canonical bits and the
set of allowed ones. Uses nothing of `uops.interp` outside this folder and no array library, so that it can refute it.
"""

from uops.interp.scalar.answers import Answer, Level
from uops.interp.scalar.elementwise import MEANING, canonical, evaluate_op
from uops.interp.scalar.formats import FORMATS, Format, bits_of, fraction, number, round_to

__all__ = ["FORMATS", "MEANING", "Answer", "Format", "Level", "bits_of", "canonical", "evaluate_op", "fraction", "number", "round_to"]
