"""Which values in payload and metadata a filter compares: by what matches, a client learns of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from .filters import CONNECTIVES, JSON_FIELDS, Lookup

Path = tuple[str, ...]

ANY_ITEM = "0"
"""An index: a list can be asked whether any of its items is this."""


def paths_compared(where: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Each lookup with a path that it compares; `where` is a filter that :func:`compile` has taken.

    >>> list(paths_compared({"payload__customer": {"email": "zoe@example.org"}}))
    [('payload__customer', ('customer', 'email'))]
    >>> list(paths_compared({"type": "paid", "not": {"any": [{"metadata__user": 7}]}}))
    [('metadata__user', ('user',))]
    """
    for name, value in where.items():
        if name in CONNECTIVES:
            for inner in [value] if isinstance(value, Mapping) else value:
                yield from paths_compared(inner)
            continue
        lookup = Lookup(name)
        if lookup.field in JSON_FIELDS:
            for wanted in value if lookup.lookup == "in" else [value]:
                for path in _paths(tuple(lookup.path), wanted):
                    yield name, path
                    if lookup.lookup == "contains":
                        yield name, (*path, ANY_ITEM)


def _paths(path: Path, wanted: Any) -> Iterator[Path]:
    stack = [(path, wanted)]
    while stack:
        path, wanted = stack.pop()
        if isinstance(wanted, Mapping) and wanted:
            stack += [((*path, key), value) for key, value in wanted.items()]
        elif isinstance(wanted, list | tuple) and wanted:
            stack += [((*path, ANY_ITEM), value) for value in wanted]
        else:
            yield path
