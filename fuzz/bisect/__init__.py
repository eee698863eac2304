"""Which pass, rule or kernel makes a program wrong.

Takes: a program, its inputs and a target. Gives: the first stage whose result is not allowed, with the step, the kernel and the
element.
"""
