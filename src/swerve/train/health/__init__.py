"""Watching a stage of training: collapse, completions that cannot be graded, and what follows."""
