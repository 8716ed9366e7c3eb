"""Knights and knaves in English, the K-and-K schema: logic, text, generator, perturbations, rows, proofs."""

from swerve.problems.k_and_k.english import KNIGHT_KNAVE, Puzzle, RoleWords, answer_text, parse_puzzle, render_puzzle
from swerve.problems.k_and_k.family import KAndK
from swerve.problems.k_and_k.generate import PERTURBATIONS, random_puzzle
from swerve.problems.k_and_k.logic import parse_statements, solutions, structure_key
from swerve.problems.k_and_k.rows import ProofSummary, prove_source

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
