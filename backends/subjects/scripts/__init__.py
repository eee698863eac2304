"""Scripts of a library alone, for its own tracker.

`script` writes one, `recording` records the calls of an adapter, and `values` writes arrays and dtypes as expressions.
"""
