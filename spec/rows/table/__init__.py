"""The rows of tinyspec, one module per family, in the document's order."""
