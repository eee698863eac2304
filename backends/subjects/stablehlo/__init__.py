"""Compilers of StableHLO as subjects under test.

`emitter` makes the text of a module from a whole graph: it takes nodes of `uops.backends.subjects.model`, and gives one function.
Each `*_adapter` compiles and runs that text by one compiler.
"""
