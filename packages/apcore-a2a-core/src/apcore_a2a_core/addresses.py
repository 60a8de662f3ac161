"""Classification of IP addresses, and lists of hosts (NFR-SEC-004).

Webhooks and remote agents name hosts to connect to. A host named from outside must not lead into
an internal network, unless a setting allows the host.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

SPECIAL_NETWORKS = [
    ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure host agent
        "192.0.0.0/24",  # protocol assignments, RFC 6890; Oracle's metadata
        "192.31.196.0/24",  # AS112, RFC 7535
        "192.52.193.0/24",  # AMT, RFC 7450
        "192.88.99.0/24",  # 6to4 relays, RFC 7526
        "192.175.48.0/24",  # AS112, RFC 7534
        "224.0.0.0/4",  # multicast, RFC 5771
        "2001::/23",  # protocol assignments, RFC 2928: Teredo, ORCHID, benchmarks
        "2002::/16",  # 6to4: holds any IPv4 address, RFC 3056
        "2620:4f:8000::/48",  # AS112, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
    )
]
"""Special-purpose networks for which `is_global` is true in some Python versions."""
GLOBAL_UNICAST_IPV6 = IPv6Network("2000::/3")
"""The block that public IPv6 addresses are allocated from (RFC 4291 §2.4).

Loopback, unspecified, mapped, NAT64, link-local, site-local, unique local and multicast addresses
are outside.
"""
CLOUD_SERVICE_ADDRESSES = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "169.254.169.123",  # AWS time service
            "169.254.169.253",  # AWS DNS
            "169.254.169.254",  # AWS, Azure, Google, Oracle, DigitalOcean, …
            "169.254.170.2",  # AWS container credentials
            "169.254.170.23",  # AWS pod credentials
            "192.0.0.192",  # Oracle
            "fd00:ec2::23",  # AWS pod credentials
            "fd00:ec2::253",  # AWS DNS
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google
        ),
    )
)
"""Fixed addresses of cloud services: DNS, time, and metadata, which gives credentials to any caller
on the machine."""
IPV4_EMBEDDING_NETWORKS = tuple(map(IPv6Network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Networks whose addresses may end with an IPv4 address (RFC 4291 §2.5.5, RFC 6052, RFC 8215)."""
NAT64_LOCAL_USE = IPv6Network("64:ff9b:1::/48")
"""The NAT64 prefix that networks may use locally (RFC 8215)."""
CACHE_SIZE = 1000
"""Maximum number of hosts whose parsed addresses are cached."""
ISATAP_IDENTIFIERS = (0x00005EFE, 0x02005EFE)
"""Values of bits 64 to 95 of an ISATAP address, before its IPv4 address (RFC 5214 §6.1)."""


def is_public(address: Address) -> bool:
    """Return whether packets to *address* go to the public internet and nowhere else.

    Example:
        ```python
        from ipaddress import ip_address

        from apcore_a2a_core.addresses import is_public

        print(is_public(ip_address("93.184.215.14")), is_public(ip_address("::ffff:10.0.0.1")))
        #> True False
        ```
    """
    if isinstance(address, IPv6Address) and (
        address.scope_id is not None or address not in GLOBAL_UNICAST_IPV6 or _is_isatap(address)
    ):
        return False
    return address.is_global and not any(address in network for network in SPECIAL_NETWORKS)


def is_forbidden(address: Address) -> bool:
    """Return whether *address* is blocked even if a setting allows its host.

    This applies to cloud services, unspecified addresses and multicast addresses.
    """
    unscoped = address if isinstance(address, IPv4Address) else IPv6Address(int(address))
    aliases = {unscoped, *embedded_ipv4(unscoped)}
    if any(alias.is_unspecified or alias.is_multicast for alias in aliases):
        return True
    return not CLOUD_SERVICE_ADDRESSES.isdisjoint(aliases)


def network_level(address: Address) -> int:
    """Return 0 if *address* is public, 1 if it is private, 2 if it is on this machine.

    Example:
        ```python
        from ipaddress import ip_address

        from apcore_a2a_core.addresses import network_level

        print([network_level(ip_address(host)) for host in ("1.1.1.1", "10.0.0.1", "::1")])
        #> [0, 1, 2]
        ```
    """
    if any(alias.is_loopback for alias in (address, *embedded_ipv4(address))):
        return 2
    return 0 if is_public(address) else 1


def embedded_ipv4(address: Address) -> list[Address]:
    """Return the IPv4 addresses that an IPv6 address may lead to: mapped, translated, tunneled."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    candidates: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if _is_isatap(address) or any(address in network for network in IPV4_EMBEDDING_NETWORKS):
        candidates.append(IPv4Address(number & 0xFFFFFFFF))
    if address in NAT64_LOCAL_USE:
        # After a /48 prefix the IPv4 address is split around bits 64 to 71, which must be zero
        # (RFC 6052 §2.2): 16 bits before them and 16 bits after them.
        candidates.append(IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF))
    return [candidate for candidate in candidates if candidate is not None]


def _is_isatap(address: IPv6Address) -> bool:
    return (int(address) >> 32) & 0xFFFFFFFF in ISATAP_IDENTIFIERS


@lru_cache(CACHE_SIZE)
def literal_address(host: str) -> Address | None:
    """Return *host* as an IP address; None if it is a name or has a scope id."""
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


class HostList:
    """A list of hosts: names, addresses and networks.

    Args:
        hosts: Names, addresses, networks, or `*` for any host. The first label of a name may be
            `*`, which stands for one or more labels.

    Attributes:
        has_star: Whether `*` is in the list.

    Raises:
        ValueError: A network is not valid.

    Example:
        ```python
        from ipaddress import ip_address

        from apcore_a2a_core.addresses import HostList

        hosts = HostList(["*.internal.example", "10.1.0.0/16"])
        print(hosts.has_name("db.internal.example"), hosts.has_address(ip_address("10.1.2.3")))
        #> True True
        ```
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        entries = [host.lower().rstrip(".") for host in hosts]
        self.has_star = "*" in entries
        networks = [entry for entry in entries if "/" in entry or literal_address(entry)]
        self._names = frozenset({*entries} - {*networks, "*"})
        self._networks = [ip_network(network) for network in networks]

    def has_name(self, host: str) -> bool:
        """Return whether the list has *host*, given in lower case, or a wildcard for it.

        The wildcard `*` does not count; see `has_star`.
        """
        labels = host.rstrip(".").split(".")
        wildcards = {"*." + ".".join(labels[start:]) for start in range(1, len(labels))}
        return not self._names.isdisjoint({host.rstrip("."), *wildcards})

    def has_address(self, address: Address) -> bool:
        """Return whether the list has *address* or a network that contains it."""
        return any(address in network for network in self._networks)
