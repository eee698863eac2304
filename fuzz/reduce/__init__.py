"""Minimization of failing programs, and the files that hold them.

Takes: a program that fails, and a test whether a smaller one fails alike. Gives: the smallest one found, as a `.uops` file.
"""
