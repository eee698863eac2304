"""Schedules found by timing candidates, and random schedules for tests.

Takes: a `Schedule` and a target. Gives: the fastest schedule seen. `beam` searches, `clock` times, `store` keeps results on disk.
"""
