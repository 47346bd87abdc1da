"""Chains whose stages are groups of devices, with memory actions: searched exactly on small clusters."""
