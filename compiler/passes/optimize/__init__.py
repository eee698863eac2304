"""Schedules: OptOps applied to kernels, and who chooses them."""
