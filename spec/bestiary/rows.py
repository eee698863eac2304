"""The bestiary's own rows, module by module."""

from uops.spec.bestiary import define, flow, memory, vector

MODULES = (flow, memory, vector, define)
