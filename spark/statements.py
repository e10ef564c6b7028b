"""The statements of Spark's readers, one in each file of ``sql``."""

import functools
import re
from importlib.resources import files


@functools.cache
def statement(name: str) -> str:
    """The text of `spark/sql/NAME.sql`, without its comments: Spark wraps some of them into statements of one line.

    >>> statement("cursors").split()[:2]
    ['SELECT', 'group_id,']
    """
    text = files("pubsub.spark").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return re.sub(r"^--.*\n", "", text, flags=re.MULTILINE).strip()
