"""Other people's array libraries and compilers as subjects under test, by one shared base.

`evaluator` is the base, a Backend. `walk` evaluates a graph node by node, `views` has movement and memory, `host` has index values.
Each other module is the adapter of one library: a table of its functions.
"""
