"""Campaigns: cases drawn from a seed, judged in processes, with everything found on disk.

Takes: a backend and a seed. Gives: a journal, a report, and a reproducer of each finding.
"""
