"""tinygrad 0.14 as a subject under test (extra `peers`): its front end, scheduler, code generator and devices."""
