"""The stages of lowering, one module each, in the order and with the names of the specification's pipeline."""
