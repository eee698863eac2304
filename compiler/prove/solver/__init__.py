"""The way to Z3: terms and queries (`smt`), processes that answer them (`worker`), and who asks those (`solver`).

Takes: queries as SMT-LIB text. Gives: an answer with a model, or that there was none in time. Only `worker` imports Z3.
"""
