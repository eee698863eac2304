"""Reports of a conformance run: canonical JSON with a published schema, JUnit XML, one HTML page, and the difference of two."""
