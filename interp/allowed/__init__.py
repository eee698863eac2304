"""Allowed sets: what a graph may give, element by element (R30 to R32, P2, P3).

`allowed` runs the interpreter and lays over every value the set of results that the rulings allow; `AllowedSet.contains` judges
an array.
"""

from uops.interp.allowed.result import AllowedResult, AllowedSet, allowed

__all__ = ["allowed", "AllowedResult", "AllowedSet"]
