"""The rows of tinyspec, a module per family, in the document's order."""
