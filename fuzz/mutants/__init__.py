"""Mutants: known bugs, introduced one at a time, that measure what the rest of `uops.fuzz` finds.

`catalogue` holds the mutants. `overlay` makes a package that contains one of them. `hunt` looks for it by `trial` campaigns in
processes of their own. `run` hunts all of them, and `report` summarizes the results.
"""
