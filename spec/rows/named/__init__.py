"""The rows of what the documents name beside ops: axis types, OptOps, compositions, properties, tables, stages and more.

`base` has the type of such a row. The other modules make the rows from the tables that the rest of the specification uses, a
module per part of the documents. `uops.spec.rows.rows.NAMED_ROWS` has all of them.
"""
