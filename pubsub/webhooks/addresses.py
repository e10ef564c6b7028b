"""Where a webhook may lead: not into our own network, whatever a name resolves to at the moment it is used."""

import ipaddress
import socket

from ..errors import PubSubError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PrivateAddress(PubSubError):
    """A webhook's host has an address that is not a public one."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, also one that is written inside another.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False, False)
    """
    ip: Address = ipaddress.ip_address(address.partition("%")[0])
    inner = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        inner += [part for part in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if part]
        if ip in _NAT64:
            inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if ip.ipv4_mapped:
            inner.remove(ip)  # Python versions differ on whether those count as global themselves
    return all(one.is_global and not one.is_multicast and not one.is_reserved for one in inner)


def connect(host: str, port: int, timeout_s: float, *, allow_private: bool) -> socket.socket:
    """A connection to the first address of a host that answers. What is checked is what is connected to."""
    refused: list[str] = []
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if not allow_private and not is_public(str(address[0])):
            refused.append(str(address[0]))
            continue
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    if failure is None:
        raise PrivateAddress(
            f"{host} leads to {', '.join(refused) or 'no address'}, which is not a public address. If it is meant to, "
            f"declare the webhook with allow_private=True."
        )
    raise failure
