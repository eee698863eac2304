"""tinygrad 0.14 as a subject under test (extra `peers`): its own front end, scheduler, code generator and devices judged by our suite."""
