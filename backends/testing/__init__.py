"""What the conformance suite and fuzzing share: edge values as bit patterns, and the journal of a long run.

Takes: dtypes and shapes; the lines of a run. Gives: arrays of the values where ops go wrong, and a file from which a run resumes.
"""
