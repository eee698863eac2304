"""The interface to Z3: terms and queries (`smt`), the process that answers them (`worker`), and its client (`solver`).

Takes: queries as SMT-LIB text. Gives: an answer with a model, or "unknown" if there was none in time. Only `worker` imports Z3.
"""
