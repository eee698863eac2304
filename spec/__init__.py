"""What may be written: ops, dtypes, nodes, derived properties, claims, dialects and the text format."""
