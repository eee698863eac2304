"""Localization of a wrong result: the pass, rule or kernel that causes it.

Takes: a program, its inputs and a target. Gives: the first stage whose result is not allowed, with the step, the kernel and the
element.
"""
