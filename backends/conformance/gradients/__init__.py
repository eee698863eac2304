"""Judges of gradient rules, and a program for each rule.

`duals` compares a gradient with exact forward mode, `differences` with difference quotients. `programs.PROGRAMS` has a graph around
each op with a rule.
"""
