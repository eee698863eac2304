"""Allowed sets: the results that a graph may give, element by element (R30 to R32, P2, P3).

`compute_allowed_sets` runs the interpreter and adds to every value the set of results that the rulings allow.
`AllowedSet.contains` judges an array.
"""

from uops.interp.allowed.result import AllowedResult, AllowedSet, compute_allowed_sets

__all__ = ["compute_allowed_sets", "AllowedResult", "AllowedSet"]
