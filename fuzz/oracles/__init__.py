"""Oracles: how a program can be found to be wrong.

Takes: a program, its inputs and the backend under test. Gives: a finding, or None. `oracles` is their table.
"""
