"""Make a failing program small, and write it down.

Takes: a program that fails, and the question whether a smaller one fails alike. Gives: the smallest found, as a `.uops` file.
"""
