"""A class name occurs once in the project, so that a reader who meets it knows which one it is."""

import ast
from collections import defaultdict
from pathlib import Path

import pubsub

PACKAGE = Path(pubsub.__file__).parent
DJANGOS = {"Command", "Meta", "Migration"}
"""Names that Django asks for."""
INNER = {"Job", "State"}
"""Of classes inside of others."""


def test_a_class_name_occurs_once() -> None:
    found = defaultdict(list)
    for folder in (PACKAGE, *(PACKAGE / link for link in ("management", "spark"))):
        for path in folder.resolve().rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(path.name)
    assert "PartitionSession" in found
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in DJANGOS | INNER} == {}
