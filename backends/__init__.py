"""Where a graph runs: the backend contract, the targets and the suite that judges them."""
