"""Data sets of the package reasoning-gym, and what judges their answers."""
