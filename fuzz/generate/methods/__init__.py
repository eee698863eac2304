"""Generators of programs that methods of Tensor make.

`chains` gives chains of methods in any order, and `workloads` gives miniatures of what users run at full size, and wide programs.
`references` gives single calls, whose results NumPy computes, too; its rows are in `calls`.
`sessions` gives statements in a row, which NumPy executes, too.
"""
