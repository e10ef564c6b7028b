"""Prepare what the Makefile's targets need: `bootstrap.py demo`, `spark` or `dev` installs that lock file into `.venv`,
`bootstrap.py java` a Java for Spark where the machine has none, `bootstrap.py system` the Debian packages of the tests.
Run by any Python ≥ 3.11, with nothing installed yet.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"

# Program → the Debian package that brings it, and what goes untested without.
SYSTEM_PACKAGES = {"chromium": "the tests in a browser", "pgbouncer": "the tests behind a pooler"}


def say(text: str) -> None:
    """Tell what is going on, at once."""
    print(f"==> {text}", flush=True)


def works(*arguments: str) -> bool:
    """Whether the virtual environment's Python runs that."""
    try:
        return subprocess.run([PYTHON, *arguments], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def lock_file(name: str) -> Path:
    """Return the file of pinned packages called `name`."""
    return CHECKOUT / "requirements" / f"{name}.txt"


def stamp(name: str) -> Path:
    """Return where a copy of the lock file is kept once everything in it is installed."""
    return VENV / f"installed-{name}.txt"


def is_installed(name: str) -> bool:
    """Whether some installed lock file holds every line of this one: dev has all of demo, for instance."""
    wanted = set(lock_file(name).read_text().splitlines())
    return any(wanted <= set(each.read_text().splitlines()) for each in VENV.glob("installed-*.txt")) and works("-V")


def pins(text: str) -> dict[str, str]:
    """Return the version of each package that a lock file names; there may be several, for different machines."""
    found: dict[str, str] = {}
    for name, version in re.findall(r"^([\w.\[\]-]+)==(\S+)", text, re.MULTILINE):
        found[name] = f"{found.get(name, '')} {version}"
    return found


def agree(one: str, other: str) -> bool:
    """Whether two lock files can be installed into one environment, and neither changes what the other brought."""
    ours, theirs = pins(one), pins(other)
    return all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())


def has_java() -> bool:
    """Whether a Java is configured, or on PATH, that Spark can run on. (pubsub/spark/java.py looks for it again.)"""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118 - a name to be looked up on PATH
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return False
    version = re.search(r'version "(\d+)', told)
    return version is not None and int(version[1]) >= 17


def make_venv() -> None:
    """Create `.venv`, or make it again if it is broken, for example because its Python was removed."""
    if works("-m", "pip", "--version"):
        return
    version = "{}.{}".format(*sys.version_info)
    try:
        import ensurepip  # noqa: F401
        import venv
    except ImportError:
        sys.exit(
            f"{sys.executable} (Python {version}) can't make virtual environments: the modules venv and ensurepip are "
            f"missing.\nOn Debian: apt-get install python{version}-venv. Or name another Python: make PYTHON=…"
        )
    say(f"Creating .venv with Python {version} (about 3 s)")
    venv.create(VENV, clear=True, with_pip=True, symlinks=True)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep a second make waiting while the first one installs. A folder can be locked, so no file is left behind."""
    folder = os.open(lock_file("demo").parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another make that is installing")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def install(name: str) -> None:
    """Bring `.venv` up to the lock file; costs nothing when it is, and needs no network then."""
    if is_installed(name):
        return
    with one_at_a_time():
        if is_installed(name):
            return
        begun = time.monotonic()
        make_venv()
        wanted = lock_file(name).read_text()
        stamps = {each: each.read_text() for each in VENV.glob("installed-*.txt")}
        for each in stamps:  # may be overruled, or left half done
            each.unlink()
        say(f"Installing requirements/{name}.txt, {wanted.count('==')} packages (10 to 60 s, this once)")
        command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        if subprocess.run([*command, "--require-hashes", "-r", str(lock_file(name))], check=False).returncode != 0:
            sys.exit(
                f"pip could not install requirements/{name}.txt; its message is above. It needs a package index: "
                "PIP_INDEX_URL, PIP_FIND_LINKS and its other settings are respected."
            )
        for each, text in stamps.items():
            if agree(text, wanted):
                each.write_text(text)
        stamp(name).write_text(wanted)
        say(f"Ready after {time.monotonic() - begun:.0f} s")


def install_system_packages() -> None:
    """Install what is missing where that is possible: as root, with apt-get."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    missing = [name for name in SYSTEM_PACKAGES if not shutil.which(name, path=path)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        for name in missing:
            say(f"{name} isn't installed: {SYSTEM_PACKAGES[name]} will be skipped")
        say(f"On Debian, as root: apt-get install {' '.join(missing)}")
        return
    say(f"Installing {' and '.join(missing)} with apt-get (10 to 60 s)")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *missing]
    # The lists of packages are missing or out of date in many images, but fetching them takes longer than installing.
    if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
        return
    subprocess.run(["apt-get", "update", "--quiet=2"], env=environment, check=False)
    if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"apt-get could not install {' '.join(missing)}; its message is above.")


if __name__ == "__main__":
    try:
        for what in sys.argv[1:]:
            if what == "system":
                install_system_packages()
            elif what == "java" and has_java():
                continue
            else:
                install(what)
    except KeyboardInterrupt:
        sys.exit(130)
