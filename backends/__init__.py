"""The backend contract, the compiled targets, the subjects under test, and the conformance suite."""
