"""The specification of the language: ops, dtypes, nodes, derived properties, claims, dialects and the text format.

`ir` is the language itself. `rows` is what both documents say of each op. `verify` checks a graph against them.
"""
