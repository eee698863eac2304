"""The rows of both documents with their claims, and graphs that the documents define.

`rows` is all of them, `ROWS[op]`; `table` has those of tinyspec, `uops.spec.bestiary` those of the second document. `claims` makes
the constraints.
"""
