"""Cases of the rows without an op (R171): axis types, address spaces, tables, compositions, collectives.

Takes: a tier. Gives: cases whose row is one of these, with an edge class for each claim or entry. OptOps are in `cases.schedules`.
"""
