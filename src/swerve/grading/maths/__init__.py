"""Answers of mathematics: reading them, and whether they are the gold answer."""
