"""The project's settings as the tests want them: production's over plain HTTP, whatever a developer's .env says."""

import os

os.environ |= {
    "ENV_FILE": "",
    "DEBUG": "false",
    "HTTPS": "false",
    "SECRET_KEY": "the-key-of-the-tests-opens-nothing-" * 2,
}
for name in [name for name in os.environ if name.startswith("PUBSUB_")]:
    del os.environ[name]

from project.settings import *  # noqa: E402, F403
from project.settings import DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast, and good for nothing else
ALLOWED_HOSTS = ["*"]

# A connection that outlives its test would keep the database from being dropped.
DATABASES["default"]["CONN_MAX_AGE"] = 0
# A name of its own for each run, so that two at once, in one checkout or on one server, stay apart.
DATABASES["default"]["TEST"] = {"NAME": os.environ.get("TEST_DATABASE") or f"test_pubsub_{os.getpid()}"}

INSTALLED_APPS = [*INSTALLED_APPS, "tests.testapp"]  # noqa: F405

# The same database under another name, as a router may have it; tests must ask for it.
DATABASES["other"] = {**DATABASES["default"], "TEST": {"MIRROR": "default"}}
