"""The modules with the bestiary's own rows, in order."""

from uops.spec.bestiary import define, flow, memory, vector

MODULES = (flow, memory, vector, define)
