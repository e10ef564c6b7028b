"""Finding PostgreSQL's JDBC driver before a session starts: if Spark cannot fetch it, the session is dead."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from .cache import cache_folder
from .errors import SparkNotReady

DEBIAN = Path("/usr/share/java/postgresql.jar")
MAVEN = "org/postgresql/postgresql"

# A package that contains the driver as the PostgreSQL project published it. Only the driver is taken from it, and must
# have the checksum that the PostgreSQL project publishes; the package itself is never installed.
CARRIER = "wbjdbc==2.4.0"
ENTRY = "wbjdbc/resources/maven/postgresql/postgresql-42.7.4.jar"
SHA256 = "188976721ead8e8627eb6d8389d500dccc0c9bebd885268a3047180274a6031e"

WAYS_OUT = (
    "Spark reads PostgreSQL by its JDBC driver, which was not found. Either set PGJDBC_JAR to the driver's jar, or "
    "install it (on Debian: apt-get install libpostgresql-jdbc-java), or put a postgresql-42.*.jar into {cache}."
)


def find_driver() -> Path:
    """The driver's jar: configured, installed or cached; otherwise it is downloaded into the cache, once.

    >>> find_driver().suffix
    '.jar'
    """
    if configured := os.environ.get("PGJDBC_JAR"):
        if not zipfile.is_zipfile(configured):
            raise SparkNotReady(f"PGJDBC_JAR is {configured}, which is not a readable jar.")
        return Path(configured)
    cache = cache_folder("jdbc")
    for path in (*_newest_first(cache.glob("postgresql-42.*.jar")), DEBIAN, *_in_maven_repositories()):
        if zipfile.is_zipfile(path):
            return path
    try:
        return fetch_driver(cache)
    except SparkNotReady as error:
        raise SparkNotReady(f"{WAYS_OUT.format(cache=cache)} Fetching it by pip failed: {error}") from error


def fetch_driver(folder: Path) -> Path:
    """Downloads the driver by pip, which knows the mirror in use, and keeps it if its checksum is right."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--dest", scratch]
        done = subprocess.run([*command, CARRIER], capture_output=True, text=True, check=False, timeout=300)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            raise SparkNotReady(done.stderr.strip()[-500:] or "pip downloaded no wheel.")
        try:
            jar = zipfile.ZipFile(wheels[0]).read(ENTRY)
        except (KeyError, zipfile.BadZipFile) as error:
            raise SparkNotReady(f"{CARRIER} does not hold {ENTRY}.") from error
    if (found := hashlib.sha256(jar).hexdigest()) != SHA256:
        raise SparkNotReady(f"{ENTRY} has the checksum {found} instead of {SHA256}. It was not kept.")
    path = folder / Path(ENTRY).name
    # Complete or not at all: another process may be looking.
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(jar)
    fresh.replace(path)
    return path


def _in_maven_repositories() -> list[Path]:
    home = Path("~").expanduser()
    found = [*(home / ".m2" / "repository" / MAVEN).glob("*/postgresql-42.*.jar")]
    for ivy in (".ivy2", ".ivy2.5.2"):
        found += (home / ivy / "jars").glob("org.postgresql_postgresql-42.*.jar")
    return _newest_first(found)


def _newest_first(jars: Iterable[Path]) -> list[Path]:
    """By version, without sources and documentation."""

    def version(jar: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", jar.stem)]

    return sorted((jar for jar in jars if not jar.stem.endswith(("-sources", "-javadoc"))), key=version, reverse=True)
