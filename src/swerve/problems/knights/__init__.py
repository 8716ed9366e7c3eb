"""Knights and knaves: one logic, puzzles in English (the K-and-K schema) and in short sentences with truth tables."""

from swerve.problems.knights.english import Puzzle, RoleWords, answer_text, parse_puzzle, render_puzzle
from swerve.problems.knights.generate import PERTURBATIONS, random_puzzle
from swerve.problems.knights.logic import parse_statements, solutions, structure_key
from swerve.problems.knights.rows import prove_row

__all__ = [
    "PERTURBATIONS",
    "Puzzle",
    "RoleWords",
    "answer_text",
    "parse_puzzle",
    "parse_statements",
    "prove_row",
    "random_puzzle",
    "render_puzzle",
    "solutions",
    "structure_key",
]
