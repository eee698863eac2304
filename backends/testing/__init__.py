"""What the conformance suite and fuzzing both need: edge values as bit patterns, and the journal of a long run.

Takes: dtypes and shapes; lines of a run. Gives: arrays that hold the values where ops go wrong, and a file from which a run goes
on.
"""
