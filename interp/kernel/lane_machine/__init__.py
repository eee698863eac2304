"""The lane machine: the definition of what a kernel means, lane by lane, with every access checked."""
