"""Run the demo shop."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from project.postgres_files import EmbeddedPostgresError
from project.shop.demo.display import Display
from project.shop.demo.prepare import PreparationError
from project.shop.demo.processes import PortTaken
from project.shop.demo.run import Demo


def number(kind: Callable[[str], float], above: float, up_to: float = float("inf")) -> Callable[[str], Any]:
    """Return what reads such a number from the command line."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = above
        if not above < value <= up_to:
            limit = f" and at most {up_to:,g}" if up_to != float("inf") else ""
            raise ArgumentTypeError(f"expected a number above {above:g}{limit}, got {text!r}")
        return value

    return parse


class Command(BaseCommand):
    help = (
        "Opens a small shop whose orders go through the log to four groups of consumers, and shows how it goes. It "
        "stops by Ctrl-C, or after --seconds; then every order is checked, and the exit code is 1 if anything is amiss."
    )
    requires_system_checks = []  # `migrate` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seconds", type=number(float, 0), help="close after this time (default: at Ctrl-C)")
        parser.add_argument(
            "--port", type=number(int, 0, 65535), help="of the admin (default: the first free one from 8000)"
        )
        parser.add_argument("--rate", type=number(float, 0, 1000), default=25, help="orders a second (default: 25)")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError(
                "The demo is for development: its web server speaks plain HTTP and serves the admin's files itself. "
                "Use `make demo`, or set DEBUG=true."
            )
        display = Display(self.stdout._out, coloured=not options["no_color"])
        demo = Demo(seconds=options["seconds"], port=options["port"], rate=options["rate"], display=display)
        try:
            faults = demo.run()
        except (EmbeddedPostgresError, PortTaken, PreparationError) as error:
            raise CommandError(str(error)) from error
        if faults:
            raise CommandError("\n".join(faults))
