"""Schedules found by timing candidates, and schedules drawn at random for tests.

Takes: a `Schedule` and a target. Gives: the fastest one seen. `clock` times, `store` keeps on disk what was found.
"""
