"""What the readers of the grammar's rules share: the state of the reading, and the rules they call of one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from swerve.rewards.maths.expressions import Node
from swerve.rewards.maths.limits import LIMITS, LimitReached
from swerve.rewards.maths.tokens import Token, TokenReader

__all__ = ["Grammar"]


class Grammar(TokenReader, ABC):
    """The rules that are needed before they are read; `parser` has the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._bars = 0
        self._depth = 0

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > LIMITS.depth:
            raise LimitReached(f"depth of a formula > {LIMITS.depth}")
        yield
        self._depth -= 1

    @abstractmethod
    def answer(self) -> Node:
        """Read answers with separators between them."""

    @abstractmethod
    def _separators(self) -> list[str]: ...

    @abstractmethod
    def _relation(self) -> Node: ...

    @abstractmethod
    def _sum(self) -> Node: ...

    @abstractmethod
    def _product(self) -> Node: ...

    @abstractmethod
    def _refuse_number_after(self, node: Node) -> None: ...

    @abstractmethod
    def _starts_factor(self) -> bool: ...

    @abstractmethod
    def _factor(self) -> Node: ...

    @abstractmethod
    def _power(self, base: Node) -> Node: ...

    @abstractmethod
    def _exponent(self) -> Node: ...

    @abstractmethod
    def _takes_braced(self, command: str) -> bool: ...

    @abstractmethod
    def _atom(self) -> Node: ...

    @abstractmethod
    def _absolute(self) -> Node: ...

    @abstractmethod
    def _group(self, opening: str) -> Node: ...

    @abstractmethod
    def _digit_argument(self) -> Node: ...

    @abstractmethod
    def _argument(self) -> Node: ...

    @abstractmethod
    def _subscript(self) -> str: ...
