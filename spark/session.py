"""Building Spark sessions, always in the same way.

>>> session = build_session(app_name="doctest")
>>> session.conf.get("spark.sql.session.timeZone")
'UTC'
"""

import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS

from pubsub.conf import conf

from .errors import SparkNotReady
from .register import register_format

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOCAL = "local[*]"


def build_session(
    *,
    app_name: str = "pubsub",
    master: str | None = None,
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> "SparkSession":
    """A session that can read the log: with a Java, PostgreSQL's driver, UTC, and a memory that suits one machine.

    A session that is already open is returned as it is. A new one knows ``format("pubsub")`` for the database
    ``using``. In order of precedence, options come from the arguments; the settings ``spark_master``, ``spark_memory``
    and ``spark_conf``; spark-submit or Spark's own files; our defaults. If something is missing, it raises
    :class:`SparkNotReady` before anything starts.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkNotReady(f"pyspark is missing ({error}): pip install 'django-outbox-pubsub[spark]'.") from error
    open_session = SparkSession.getActiveSession()
    if open_session is not None:
        return open_session
    settings = conf()
    chosen: dict[str, str] = {}
    if master := master or settings.spark_master:
        chosen["spark.master"] = master
    chosen["spark.driver.memory"] = memory or settings.spark_memory
    chosen |= {**settings.spark_conf, **(config or {})}
    session = SparkSession.builder.config(conf=_complete(app_name, chosen)).getOrCreate()
    if find_spec("pyarrow"):
        register_format(session, using=using)
    return session


def _complete(app_name: str, chosen: Mapping[str, str]) -> "SparkConf":
    from pyspark import SparkConf, SparkContext

    from .java import find_java
    from .jdbc_driver import find_driver

    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if under_submit:
        # Its Java is already running, and knows the command line.
        SparkContext._ensure_initialized()
        configuration = SparkConf()
        present = dict(configuration.getAll())
    else:
        os.environ["JAVA_HOME"] = str(find_java())
        # Not what an earlier session of this process left in its Java.
        configuration = SparkConf(loadDefaults=False)
        present = {**_defaults_file(), **_submit_arguments()}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if under_submit and "spark.driver.memory" in present:
        chosen = {name: value for name, value in chosen.items() if name != "spark.driver.memory"}
    wanted = {**_defaults(app_name, {**present, **chosen}), **present, **chosen}
    if not _has_driver(wanted):
        wanted["spark.jars"] = ",".join(filter(None, [wanted.get("spark.jars"), str(find_driver())]))
    for name, value in wanted.items():
        configuration.set(name, value)
    return configuration


def _defaults(app_name: str, known: Mapping[str, str]) -> dict[str, str]:
    defaults = {
        "spark.app.name": app_name,
        "spark.master": LOCAL,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The way from Java to Python by Arrow, which the streaming source uses.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if known.get("spark.master", LOCAL).startswith("local"):
        # Nothing else needs to reach it, and this machine's name may not resolve.
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # 200 is for a cluster; here each costs more than it saves.
        defaults["spark.sql.shuffle.partitions"] = "8"
    return defaults


def _has_driver(known: Mapping[str, str]) -> bool:
    """Whether PostgreSQL's driver is configured: by a jar, or by its coordinates for Ivy."""
    named = ",".join(
        known.get(name, "") for name in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    )
    return re.search(r"postgresql[:-]\d|postgresql\.jar", named) is not None


def _defaults_file() -> dict[str, str]:
    """The options of conf/spark-defaults.conf: what we pass on a command line would override them."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")  # noqa: PTH118
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    pairs = (re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}


def _submit_arguments() -> dict[str, str]:
    """The master of PYSPARK_SUBMIT_ARGS, which notebooks use."""
    found = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return {"spark.master": found[1]} if found else {}
