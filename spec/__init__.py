"""What may be written: ops, dtypes, nodes, derived properties, claims, dialects and the text format.

`ir` is the language, `rows` what both documents say of each op, `verify` the judge of a graph.
"""
