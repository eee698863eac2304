"""Elementwise ops on allowed sets, by the way in which an op can be followed: rounding, points, branches, poles."""
