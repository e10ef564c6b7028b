"""The project for an ASGI server: `uvicorn project.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
application = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler  # noqa: E402

if settings.DEBUG:  # elsewhere a web server serves what `collectstatic` gathered
    application = ASGIStaticFilesHandler(application)
