"""How the newest events of groups have gone: one that fails on everything is a problem, though it tries again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled
from pubsub.subscriptions.filters import compile

from .facts import RecentFailures

LOOKED_AT = 500
"""How many of the newest events of a group are looked at, at most."""

NEWEST = 20

AT_LEAST_LETTERS = 5
"""A group with fewer open dead letters does not fail on everything."""

AT_MOST_GROUPS = 20
"""How many groups are looked at in one go; those that failed last come first."""


def recent_failures(
    using: str, groups: Sequence[Mapping[str, Any]], topic_ids: Mapping[str, int]
) -> dict[int, RecentFailures]:
    """By subscription id, for those rows of status_groups.sql that have open dead letters. One statement, or none."""
    candidates = [
        row
        for row in groups
        if row["status"] == "ACTIVE" and row["dead"] + row["retrying"] >= AT_LEAST_LETTERS and row["topic"] in topic_ids
    ]
    candidates = sorted(candidates, key=lambda row: row["failed_last"], reverse=True)[:AT_MOST_GROUPS]
    if not candidates:
        return {}
    statements = []
    parameters: dict[str, Any] = {"newest": NEWEST, "looked_at": LOOKED_AT}
    for n, row in enumerate(candidates):
        wanted = compile(json.loads(row["filter"])).named(f"filter_{n}")
        statements.append(load("monitoring/recent_failures", n=str(n), filter=wanted.sql))
        parameters |= {f"group_{n}": row["group_id"], f"topic_{n}": topic_ids[row["topic"]], **wanted.parameters}
    names, rows = run_uncompiled(using, " UNION ALL ".join(statements), parameters)
    return {
        candidates[candidate]["id"]: RecentFailures(**dict(zip(names[1:], values, strict=True)))
        for candidate, *values in rows
    }
