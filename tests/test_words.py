"""One word for one thing: no text of ours uses a word that the glossary replaced, or that reads as translated.

Checked are the documents, comments, docstrings, messages, SQL, templates and scripts, and the names of tests.
"""

import io
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

INSTEAD = {
    r"anew": "again, or new",
    r"anybody|everybody|nobody|somebody": "you, another worker, any user, all processes, no process",
    r"beats?|beating": "heartbeat, sends heartbeats",
    r"bur(?:y|ies|ied)|stranded": "set aside, parked",
    r"claim(?:s|ed|ing|er)?|leaseholders?|keepers?": "lease, holder",
    r"coordinators?|coordinating": "leader",
    r"counts not|needs not": "is ignored, need not",
    r"deadly|suspects?|the worst of it": "poisoned, crash count",
    r"enrol(?:s|led|ling|ment)?|verdicts?|reviv(?:e|es|ed|ing)": "join, rejoin",
    r"(?:is|are|was|were|be|been|being) told": "gets, learns, is reported, is shown",
    r"followers?": "parked events, other processes",
    r"him|himself|his|whoever": "you, it, a worker that",
    r"housekeep(?:er|ing)|retires?|retiring": "maintenance, retention, drops",
    r"journals?": "audit log",
    r"operators?' verbs?|verbs?": "action",
    r"places?": "cursor (of a group), position, offset, or what it is",
    r"rehears(?:e|es|ed|al|als)": "dry run",
    r"shall": "must",
    r"storage partitions?|stretch(?:es)?": "segment",
    r"visit": "session",
}
"""What not to say, and what to say instead."""

ORDINARY = (
    r"consumer_claims\w*",  # the table of leases
    r"\bin (?:the |its |one |many )?places?\b|\b(?:takes|loses) its place\b",
    r"\bplace_order\b|\bplaces? (?:an |open )?orders?\b|\border = place\b|\bdecimal_places\b",
    r"\bplace(?:\.created|\.updated|\.deleted|_ptr)|\bas a place\b",  # a model of the tests
    r"[\"`(]nobody\b|\baccount nobody\b",  # the account of Unix
    r"systemd's journal",
)
"""Where such a word means something else. It is not looked at."""

TEXTS = (".css", ".example", ".html", ".js", ".md", ".sql", ".toml", ".yml")
NOT_OURS = ("CHANGELOG.md", "tests/test_words.py")
"""History keeps its words; this file has to say them."""
MADE = ("build", "dist", "node_modules", "requirements")

PATTERN = re.compile("|".join(rf"(?P<w{n}>\b(?:{words})\b)" for n, words in enumerate(INSTEAD)), re.IGNORECASE)
IGNORED = re.compile("|".join(ORDINARY), re.IGNORECASE)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a file, with their line. Of Python: comments, strings and the names of tests."""
    if path.suffix in TEXTS or path.name == "Makefile":
        yield 1, path.read_text()
    elif path.suffix == ".py":
        before = ""
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            is_text = tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE")
            if is_text or (before == "def" and token.string.startswith("test_")):
                yield token.start[0], token.string
            before = token.string


def faults(text: str) -> Iterator[tuple[int, str]]:
    """The words in a text that should be others, with their line in it, and what to say instead."""
    instead = list(INSTEAD.values())
    # Names are words, too: no_claim_left.
    words = IGNORED.sub(lambda found: " " * len(found[0]), text).replace("_", " ")
    for found in PATTERN.finditer(words):
        assert found.lastgroup
        yield words.count("\n", 0, found.start()), f'"{found[0]}": say {instead[int(found.lastgroup[1:])]}'


def our_files() -> Iterator[tuple[str, Path]]:
    """The files of the checkout that are neither hidden nor made."""
    for folder, folders, files in os.walk(CHECKOUT):
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name not in MADE]
        for path in (Path(folder, name) for name in files):
            yield path.relative_to(CHECKOUT).as_posix(), path


def all_faults() -> Iterator[str]:
    for name, path in our_files():
        if not name.startswith(NOT_OURS):
            for line, text in texts_of(path):
                for further, fault in faults(text):
                    yield f"{name}:{line + further}: {fault}"


def test_every_text_uses_the_words_of_the_glossary() -> None:
    assert list(all_faults()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a claim that nobody renews", ["claim", "nobody"]),
        ("test_the_place_moves_first", ["place"]),
        ("SELECT FROM consumer_claims AS lease", []),
        ("replaced in place, by one place_order()", []),
        ("The journal\nis told", ["journal", "is told"]),
    ],
)
def test_whole_words_are_found_and_ordinary_senses_are_not(text: str, found: list[str]) -> None:
    assert [fault.split('"')[1] for _, fault in faults(text)] == found


def test_python_is_checked_for_its_texts_and_the_names_of_its_tests(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text('place = 1  # a comment\ndef test_a_name(): """A docstring."""\n')
    assert list(texts_of(path)) == [(1, "# a comment"), (2, "test_a_name"), (2, '"""A docstring."""')]
