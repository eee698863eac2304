"""Campaigns: cases drawn from a seed and judged in processes, with all findings on disk.

Takes: a backend and a seed. Gives: a journal, a report, and a reproducer of each finding.
"""
