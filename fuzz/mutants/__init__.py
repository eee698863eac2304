"""Mutants: known bugs, put in one at a time, that measure what the rest of `uops.fuzz` is worth.

`catalogue` says which they are, `overlay` makes a package that has one, `hunt` looks for it by a `trial` in a process of its own,
`run` does that for all of them, `report` says what became of them.
"""
