"""The stages of lowering, in the order and with the names of the specification's pipeline.

Takes: a graph of one dialect. Gives: the same program in the next one. A stage of several modules is a folder, whose module of the
same name holds the pass; `uops.compiler.pipeline` is their table.
"""
