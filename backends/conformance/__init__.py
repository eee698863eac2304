"""The conformance suite: cases generated from the rows of the specification, and the judge of any backend.

Takes: a backend, by the contract alone. Gives: a verdict per row, dtype and edge class, and a report. `cases` generates the cases,
`runner` sends them to worker processes, `judge` compares results with the allowed sets, and `report` writes the outcome. `controls`
are backends whose score is known.
"""
