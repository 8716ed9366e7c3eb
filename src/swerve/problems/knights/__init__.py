"""Knights and knaves in English, the K-and-K schema: logic, text, generator, perturbations, rows, proofs."""

from swerve.problems.knights.english import KNIGHT_KNAVE, Puzzle, RoleWords, answer_text, parse_puzzle, render_puzzle
from swerve.problems.knights.generate import PERTURBATIONS, random_puzzle
from swerve.problems.knights.k_and_k import KAndK
from swerve.problems.knights.logic import parse_statements, solutions, structure_key
from swerve.problems.knights.rows import ProofSummary, prove_source

__all__ = [
    "KNIGHT_KNAVE",
    "PERTURBATIONS",
    "KAndK",
    "ProofSummary",
    "Puzzle",
    "RoleWords",
    "answer_text",
    "parse_puzzle",
    "parse_statements",
    "prove_source",
    "random_puzzle",
    "render_puzzle",
    "solutions",
    "structure_key",
]
