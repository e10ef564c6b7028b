"""Make groups of users for the admin."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError
from django.db import router, transaction

from pubsub.admin.groups import make_groups
from pubsub.errors import PubSubError
from pubsub.management.databases import check_alias


class Command(BaseCommand):
    help = (
        "Creates groups of users for the admin: Pub/sub viewers, Pub/sub operators and Pub/sub administrators. A group "
        "that exists stays as it is."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", help="the database with the users (default: the one that the routers name)")

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"] or router.db_for_write(Group)
        check_alias(using)
        try:
            with transaction.atomic(using=using):
                made = make_groups(using)
        except PubSubError as error:
            raise CommandError(str(error)) from error
        for name, is_new in made.items():
            self.stdout.write(f"{name}: {'created' if is_new else 'exists, left as it is'}")
