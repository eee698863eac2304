"""Rewriting: patterns, rules, their compilation to matchers, and the engine that applies them to a fixpoint.

Takes: a graph and a list of rules. Gives: the graph in normal form. `rules` holds the rules by theme, `fold` evaluates an op of
constants, and `lowering_cache` memoizes what several passes of one lowering derive.
"""
