"""The project's settings, from the environment: .env.example names and explains every variable.

Without a DATABASE_URL, importing this module starts the embedded PostgreSQL (half a second the first time, 0.02 s when
it runs already). Django reads a database's settings as soon as the first model is loaded, so there is no later moment;
a command that needs no database at all can be given any DATABASE_URL and never connects to it.
"""

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environ  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured

from project.embedded_postgres import ensure_running

BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL = BASE_DIR / ".local"

env = environ.Env()
if env_file := os.environ.get("ENV_FILE", str(BASE_DIR / ".env")):
    env.read_env(env_file)


def converted(name: str, convert: Callable[[str], Any]) -> Any:
    """Return a variable's value; the error names the variable, which a failed conversion doesn't."""
    try:
        return env(name, cast=convert)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={os.environ[name]!r} can't be used: {error}.") from error


def secret_key() -> str:
    """Return SECRET_KEY. For development a random one is made, and kept, so that no one is logged out by a restart.

    What was kept serves without DEBUG as well, so that commands run beside a demo, and after it. ALLOWED_HOSTS is empty
    then: a web server needs more.
    """
    # Not through env(): there a value that starts with "$", as random ones do, names another variable.
    if given := os.environ.get("SECRET_KEY"):
        return given
    kept = LOCAL / "secret_key"
    if not DEBUG and not kept.exists():
        raise ImproperlyConfigured(
            "SECRET_KEY isn't set, and DEBUG is off. Set SECRET_KEY to 50 or more random characters, for instance from "
            "`python -c 'import secrets; print(secrets.token_urlsafe(50))'`; for development set DEBUG=true instead."
        )
    if not kept.exists():
        LOCAL.mkdir(exist_ok=True)
        fresh = LOCAL / f"secret_key.{os.getpid()}"
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(50))
        # Whole or not at all, and the first process wins: the others use what it made.
        try:
            os.link(fresh, kept)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return kept.read_text()


def database(url: str) -> dict[str, Any]:
    """Return what Django wants to know about the database at `url`."""
    config: dict[str, Any] = env.db_url_config(url, engine="pubsub.db.backend")
    options = config.setdefault("OPTIONS", {})
    # From a URL's query everything comes as text, and "false" would be true.
    for values in (config, options):
        values.update({key: value == "true" for key, value in values.items() if value in ("true", "false")})
    pool = options.get("pool")
    if isinstance(pool, str):
        options["pool"] = json.loads(pool)  # such as {"min_size": 2, "max_size": 8}
    # A pool does both itself, and Django refuses persistent connections beside it.
    config.setdefault("CONN_MAX_AGE", 0 if pool else 60)
    config.setdefault("CONN_HEALTH_CHECKS", not pool)
    return config


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = secret_key()
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

DATABASES = {"default": database(os.environ.get("DATABASE_URL") or ensure_running())}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# PUBSUB_BATCH_SIZE=200 becomes PUBSUB["batch_size"] = 200. The defaults are the app's. What isn't listed here goes on
# as text, and the app's system check names the setting that was probably meant.
PUBSUB_TYPES: dict[str, Callable[[str], Any]] = {
    "batch_size": int,
    "dead_after_misses": int,
    "dead_after_silence_s": lambda text: None if text == "never" else int(text),
    "dead_letter_retention_s": int,
    "dedup_window_s": int,
    "lease_s": int,
    "audit_log_retention_s": int,
    "logged_failures_per_minute": int,
    "longest_pause_ms": int,
    "max_partitions": int,
    "max_payload_bytes": int,
    "max_streams": int,
    "max_streams_per_user": int,
    "member_retention_s": int,
    "segment_rows": int,
    "sequencer_stuck_s": int,
    "redact": str,
    "redact_paths": lambda text: [path.strip() for path in text.split(",") if path.strip()],
    "short_way": json.loads,
    "spark_conf": json.loads,
    "spark_master": str,
    "spark_memory": str,
    "spark_statement_timeout_s": int,
    "topics": json.loads,
    "partitions": int,
    "tracing": json.loads,
    "transient_attempts": int,
    "transient_s": int,
    "unknown_topic": str,
    "wait_period_ms": int,
}
PUBSUB: dict[str, Any] = {
    (key := name.removeprefix("PUBSUB_").lower()): converted(name, PUBSUB_TYPES.get(key, str))
    for name, value in os.environ.items()
    if name.startswith("PUBSUB_") and value
}
# The demo shop's topic; one of that name in the environment comes before.
PUBSUB["topics"] = {"orders.events": {"partitions": 8}} | PUBSUB.get("topics", {})

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "pubsub",
    "project.shop",
    "bench",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", default=str(LOCAL / "static"))

# HTTPS=false serves plain HTTP, as behind a VPN: a browser would neither return secure cookies nor follow the redirect.
HTTPS = env.bool("HTTPS", default=not DEBUG)
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=HTTPS)
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=3600 if HTTPS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=True)
# Joining the browsers' preload list is hard to undo, so no warning advises it.
SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=False)
SILENCED_SYSTEM_CHECKS = ["security.W021"]
# Only behind a proxy that sets the header itself: any client can send it.
if env.bool("TRUST_X_FORWARDED_PROTO", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="INFO").upper()},
    # Django's own handlers print nothing unless DEBUG is on, and would print everything twice then.
    "loggers": {name: {"handlers": [], "propagate": True} for name in ("django", "django.server")},
}
