"""Webhooks: events sent to other servers by HTTP, as ordinary subscriptions that deliver at least once.

Declared in a ``subscribers.py``, beside the handlers. The requests follow the Standard Webhooks specification, so
receivers find libraries that verify them.
"""

from .declare import webhook
from .sign import InvalidSignature, generate_secret, sign, verify

__all__ = ["InvalidSignature", "generate_secret", "sign", "verify", "webhook"]
