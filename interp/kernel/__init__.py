"""What a kernel means: loops, lanes, workgroups, and the memory they share."""
