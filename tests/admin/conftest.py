"""People who sign in to the admin."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User


@pytest.fixture
def sign_in(client):
    """Signs a user in who has only the given permissions."""

    def sign_in(*codenames):
        user = User.objects.create_user(f"user-{uuid.uuid4()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="pubsub", codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def operator(sign_in):
    return sign_in("view_deadletter", "view_payload_deadletter", "replay_deadletter", "discard_deadletter")
