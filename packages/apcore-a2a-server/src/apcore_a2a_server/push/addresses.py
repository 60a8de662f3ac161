"""Which addresses are out in the public internet, and which are not (NFR-SEC-004)."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network, RFC 791
            "10.0.0.0/8",  # private, RFC 1918
            "100.64.0.0/10",  # carrier-grade NAT, RFC 6598
            "127.0.0.0/8",  # loopback, RFC 1122
            "168.63.129.16/32",  # Azure's host
            "169.254.0.0/16",  # link-local, RFC 3927; where clouds have their metadata
            "172.16.0.0/12",  # private, RFC 1918
            "192.0.0.0/24",  # protocol assignments, RFC 6890; Oracle's metadata
            "192.0.2.0/24",  # documentation, RFC 5737
            "192.31.196.0/24",  # AS112, RFC 7535
            "192.52.193.0/24",  # AMT, RFC 7450
            "192.88.99.0/24",  # 6to4 relays, RFC 7526
            "192.168.0.0/16",  # private, RFC 1918
            "192.175.48.0/24",  # AS112, RFC 7534
            "198.18.0.0/15",  # benchmarks, RFC 2544
            "198.51.100.0/24",  # documentation, RFC 5737
            "203.0.113.0/24",  # documentation, RFC 5737
            "224.0.0.0/4",  # multicast, RFC 5771
            "240.0.0.0/4",  # reserved, RFC 1112; broadcast
        ),
    )
)
GLOBAL_6 = IPv6Network("2000::/3")
"""What has been given out for public use (RFC 4291 §2.4).

Outside are loopback, unspecified, mapped, NAT64, link-local, site-local, unique local, multicast.
"""
NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, RFC 2928: Teredo, ORCHID, benchmarks
            "2001:db8::/32",  # documentation, RFC 3849
            "2002::/16",  # 6to4: holds any IPv4 address, RFC 3056
            "2620:4f:8000::/48",  # AS112, RFC 7534
            "3fff::/20",  # documentation, RFC 9637
        ),
    )
)
METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "169.254.169.123",  # AWS, time
            "169.254.169.253",  # AWS, names
            "169.254.169.254",  # AWS, Azure, Google, Oracle, DigitalOcean, …
            "169.254.170.2",  # AWS, containers
            "169.254.170.23",  # AWS, pods
            "192.0.0.192",  # Oracle
            "fd00:ec2::23",  # AWS, pods
            "fd00:ec2::253",  # AWS, names
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google
        ),
    )
)
"""Where machines of a cloud ask for their own credentials: never an address of a webhook."""
WITH_IPV4 = tuple(map(IPv6Network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Where the last four bytes are an IPv4 address (RFC 4291 §2.5.5, RFC 6052)."""
NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before an IPv4 address in the lower half of an IPv6 one (RFC 5214 §6.1)."""


def is_public(address: Address) -> bool:
    """Whether packets to *address* go out into the public internet, and nowhere else.

    Example:
        ```python
        from ipaddress import ip_address

        from apcore_a2a_server.push.addresses import is_public

        print(is_public(ip_address("93.184.215.14")), is_public(ip_address("::ffff:10.0.0.1")))
        #> True False
        ```
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_4)
    if address.scope_id is not None or address not in GLOBAL_6:
        return False
    tunnels = (int(address) >> 32) & 0xFFFFFFFF in ISATAP
    return not tunnels and not any(address in network for network in NOT_PUBLIC_6)


def is_forbidden(address: Address) -> bool:
    """Whether nobody may name *address*: clouds' metadata, "any", and addresses of many hosts."""
    plain = address if isinstance(address, IPv4Address) else IPv6Address(int(address))
    known = {plain, *embedded(plain)}
    return any(it in METADATA or it.is_unspecified or it.is_multicast for it in known)


def embedded(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 one may stand for: mapped, translated or in a tunnel."""
    if isinstance(address, IPv4Address):
        return []
    bits = int(address)
    low = IPv4Address(bits & 0xFFFFFFFF)
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if any(address in network for network in WITH_IPV4) or (bits >> 32) & 0xFFFFFFFF in ISATAP:
        found.append(low)
    if address in NAT64_LOCAL:  # RFC 6052 §2.2 leaves out the bits 64 to 71
        found.append(IPv4Address((bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF))
    return [it for it in found if it is not None]
