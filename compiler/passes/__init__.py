"""Passes of the lowering pipeline, in the order and under the names of the specification.

Takes: a graph of one dialect. Gives: the same program in the next dialect. A pass of several modules is a folder, and its module
of the same name holds the entry point. `uops.compiler.pipeline` is the table of passes.
"""
