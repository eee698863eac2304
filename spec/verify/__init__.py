"""The verifier, which checks a graph against the claims of its rows and the forms of a dialect.

`infer` finds the dialect of a graph for which nothing says it.
"""
