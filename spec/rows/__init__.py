"""The rows of both documents with their claims, and the graphs that the documents define.

`rows` collects all rows, `ROWS[op]`. `table` has those of tinyspec, `uops.spec.bestiary` those of the second document. `claims`
builds the constraints.
"""
