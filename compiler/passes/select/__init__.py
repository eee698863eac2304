"""Instruction selection: only ops, dtypes and vectors that the target has.

Takes: EXPANDED. Gives: SELECTED. `vectors` lowers shaped values to native vectors, `vector_reduce` and `vector_transpose` combine
their lanes, and `index_widths` chooses machine integers for index values.
"""
