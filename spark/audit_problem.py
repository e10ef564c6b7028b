"""A problem that an audit finds."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class AuditProblem:
    """Something wrong at some offsets of a topic.

    >>> print(AuditProblem(topic="orders", problem="gap", first=3, last=5))
    orders: gap at offsets 3 to 5
    """

    topic: str
    problem: str
    first: int
    last: int
    detail: str = ""

    def __str__(self) -> str:
        where = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"{self.topic}: {self.problem} at {where}" + (f": {self.detail}" if self.detail else "")
