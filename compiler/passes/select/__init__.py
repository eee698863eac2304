"""Instruction selection: only ops, dtypes and vectors that the target has.

Takes: EXPANDED. Gives: SELECTED. `vectors` makes native vectors of shaped values, `vector_reduce` and `vector_transpose` combine
their lanes, `index_widths` chooses machine integers for index values.
"""
