"""What a graph means: evaluation with NumPy, op by op, in every dialect."""
