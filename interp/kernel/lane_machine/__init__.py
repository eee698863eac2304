"""The lane machine: the definition of a kernel, lane by lane and element by element."""
