"""What ops compute, as functions of NumPy arrays. Nothing here knows a graph."""
