"""The conformance suite: cases generated from the rows of the specification, and the judge of any backend.

Takes: a backend, by the contract alone. Gives: a verdict per row, dtype and edge class, and a report. `cases` generates, `runner`
asks worker processes, `judge` compares with the allowed sets, `report` writes. `controls` are backends whose score is known.
"""
