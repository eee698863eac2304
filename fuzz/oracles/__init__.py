"""Oracles: tests that find a program's result to be wrong.

Takes: a program, its inputs and the backend under test. Gives: a fault, or None. `oracles` holds their table.
"""
