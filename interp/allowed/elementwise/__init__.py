"""Elementwise ops on allowed sets, by the way in which they are evaluated: rounding, points, branches, poles."""
