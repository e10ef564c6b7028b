"""Which addresses a webhook may use: none in our own network, whatever a name resolves to when a request is sent."""

import ipaddress
import os
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from pubsub.errors import PubSubError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_asked: "dict[tuple[str, int], Future[list[Any]]]" = {}
"""Names that are being resolved at this moment."""
_lock = threading.Lock()
os.register_at_fork(after_in_child=_asked.clear)  # the threads that would answer are the parent's


class PrivateAddress(PubSubError):
    """A webhook's host has an address that is not a public one."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, including one embedded in another.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False, False)
    """
    ip: Address = ipaddress.ip_address(address.partition("%")[0])
    inner = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        inner += [part for part in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if part]
        if ip in _NAT64:
            inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if ip.is_site_local:  # deprecated, so global to Python; still in use inside networks
            return False
        if ip.ipv4_mapped:
            inner.remove(ip)  # Python versions differ on whether those count as global themselves
    return all(one.is_global and not one.is_multicast and not one.is_reserved for one in inner)


def connect(host: str, port: int, deadline: float, *, allow_private: bool) -> socket.socket:
    """A connection to the first address of a host that answers. The address checked is the address connected to.

    The deadline, in terms of `time.monotonic()`, covers resolving the name and every address that is tried.
    """
    refused: list[str] = []
    failure: OSError | None = None
    for family, kind, protocol, _, address in _resolve(host, port, deadline):
        if not allow_private and not is_public(str(address[0])):
            refused.append(str(address[0]))
            continue
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    if failure is None:
        raise PrivateAddress(
            f"{host} leads to {', '.join(refused) or 'no address'}, which is not a public address. To use it anyway, "
            f"declare the webhook with allow_private=True."
        )
    raise failure


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time is left")
    return left


def _resolve(host: str, port: int, deadline: float) -> list[Any]:
    """What getaddrinfo() returns. It has no timeout and cannot be interrupted: a thread runs it, and may stay behind.

    Other requests for the same name wait for the same answer, so at most one thread per name hangs.
    """
    with _lock:
        answer = _asked.get((host, port))
        if answer is None:
            answer = _asked[host, port] = Future()
            threading.Thread(target=_ask, args=(host, port, answer), name="pubsub-resolving", daemon=True).start()
    try:
        return answer.result(_left(deadline))
    except TimeoutError:
        raise TimeoutError(f"the name {host} was not resolved in time") from None


def _ask(host: str, port: int, answer: "Future[list[Any]]") -> None:
    try:
        answer.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except Exception as error:
        answer.set_exception(error)
    finally:
        with _lock:
            _asked.pop((host, port), None)
