"""Signatures after the Standard Webhooks specification: HMAC-SHA256 over id, time and body."""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, Sequence

from pubsub.errors import InvalidSubscription, PubSubError

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""Bytes of a secret."""

TOLERANCE_S = 300

LONGEST_TIME = 18
"""Longest timestamp that is read: Python refuses to parse thousands of digits, or to subtract hundreds."""


class InvalidSignature(PubSubError):
    """A received request was not signed with the secret, or was signed too long ago."""


def generate_secret() -> str:
    """A new secret, for both sides to keep.

    >>> generate_secret().startswith("whsec_")
    True
    """
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def decode_secret(secret: str) -> bytes:
    """The bytes of a secret. The error says what is wrong with it, without showing it."""
    if isinstance(secret, str) and secret.startswith(PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if SHORTEST <= len(key) <= LONGEST:
            return key
    raise InvalidSubscription(
        f'A webhook\'s secret must be "{PREFIX}" and the base64 of {SHORTEST} to {LONGEST} bytes; '
        f"pubsub.streams.webhooks.generate_secret() makes one."
    )


def sign(secret: str | Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header ``webhook-signature``: one signature for each secret, while one replaces another.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    given = [secret] if isinstance(secret, str) else secret
    digests = (hmac.digest(decode_secret(one), content, hashlib.sha256) for one in given)
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


def verify(secret: str | Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """For receivers: raises :class:`InvalidSignature` unless the body was signed with a secret, just now.

    The signature covers the uncompressed body.

    >>> verify(generate_secret(), {}, b"{}")
    Traceback (most recent call last):
    pubsub.streams.webhooks.sign.InvalidSignature: The request has no header webhook-id.
    """
    known = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if name not in known:
            raise InvalidSignature(f"The request has no header {name}.")
    sent = known["webhook-timestamp"]
    if not sent.isdecimal() or len(sent) > LONGEST_TIME or abs(time.time() - int(sent)) > TOLERANCE_S:
        raise InvalidSignature(f"The request was signed more than {TOLERANCE_S} s ago, or its time is wrong.")
    expected = sign(secret, known["webhook-id"], int(sent), body).split()
    given = known["webhook-signature"].split()
    if not any(hmac.compare_digest(one.encode(), other.encode()) for one in expected for other in given):
        raise InvalidSignature("The request was not signed with this secret.")
