"""How each statement of an SQL text begins: enough of PostgreSQL's lexer to know a COMMIT from a string that says so.

Every rule consumes what it has matched and never looks back, so the time taken grows with the text and nothing else.
"""

import re
from collections.abc import Iterator

MOST_WORDS = 4
"""How many words of a statement are looked at: as many as `ROLLBACK TRANSACTION TO SAVEPOINT` has."""

# PostgreSQL's white space and identifiers, which are not Python's: a no-break space is a letter there.
_SPACE = r"[ \t\n\r\f\v]"
_LETTER = r"A-Za-z_\x80-\U0010ffff"
_TOKEN = re.compile(
    rf"""
      (?P<space>{_SPACE}++ | --[^\n\r]*+)
    | (?P<comment>/\*)
    | (?P<escaping>[eE]')
    | (?P<string>'(?:[^']++|'')*+(?:'|\Z))
    | (?P<identifier>"(?:[^"]++|"")*+(?:"|\Z))
    | (?P<dollar>\$(?:[{_LETTER}][{_LETTER}0-9]*+)?\$)
    | (?P<word>[{_LETTER}][{_LETTER}0-9$]*+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPING_STRING = re.compile(r"(?:[^'\\]++|\\(?:.|\Z)|'')*+(?:'|\Z)", re.DOTALL)
_GOES_ON = re.compile(r"(?:[ \t\f\v]++|--[^\n\r]*+)*+[\n\r](?:[ \t\n\r\f\v]++|--[^\n\r]*+[\n\r])*+'")
"""A string is continued by one that stands on a line below it."""
_COMMENT_MARK = re.compile(r"/\*|\*/")


def first_words(text: str) -> Iterator[tuple[str, ...]]:
    """The first words of each statement, in capitals. A statement that begins with anything else has none.

    >>> list(first_words("/* now; */ commit; SELECT 'it''s; END'; Rollback  work -- or not"))
    [('COMMIT',), ('SELECT',), ('ROLLBACK', 'WORK')]
    """
    words: list[str] = []
    is_beginning, is_empty = True, True
    # How deep in parentheses, and in a function's BEGIN ATOMIC … END: semicolons in there separate nothing.
    depth = body = 0
    before = ""
    for kind, mark in _tokens(text):
        if mark == ";" and not depth and not body:
            if not is_empty:
                yield tuple(words)
            words, is_beginning, is_empty, before = [], True, True, ""
            continue
        is_empty = False
        word = mark.upper() if kind == "word" else ""
        if is_beginning and word and len(words) < MOST_WORDS:
            words.append(word)
        else:
            is_beginning = False
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth = max(0, depth - 1)
        elif (word == "ATOMIC" and before == "BEGIN" and words[0] == "CREATE") or (body and word == "CASE"):
            body += 1
        elif body and word == "END":
            body -= 1
        before = word
    if not is_empty:
        yield tuple(words)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """What the text consists of, without white space and comments."""
    position, end = 0, len(text)
    while position < end:
        found = _TOKEN.match(text, position)
        assert found is not None  # noqa: S101 - `other` is any character
        kind, position = str(found.lastgroup), found.end()
        if kind == "space":
            continue
        if kind == "comment":
            position = _behind_comment(text, position)
            continue
        if kind == "escaping":
            position = _behind_escaping_string(text, position)
        elif kind == "dollar":
            closing = text.find(found[0], position)
            position = end if closing < 0 else closing + len(found[0])
        yield kind, found[0]


def _behind_comment(text: str, position: int) -> int:
    depth = 1
    for mark in _COMMENT_MARK.finditer(text, position):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)


def _behind_escaping_string(text: str, position: int) -> int:
    while True:
        found = _ESCAPING_STRING.match(text, position)
        assert found is not None  # noqa: S101 - it matches the empty text
        goes_on = _GOES_ON.match(text, found.end())
        if goes_on is None:
            return found.end()
        position = goes_on.end()
