"""Addresses that webhooks may have: only public ones."""

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    summarize_address_range,
)
from itertools import combinations

import pytest
from apcore_a2a_core.addresses import is_forbidden, is_public
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.guard import Guard, RefusedError
from hypothesis import example, given
from hypothesis import strategies as st

from tests.server.inloop import anyio_backend as anyio_backend

INTERNAL_4 = {
    "this network": "0.0.0.0/8",
    "private, large": "10.0.0.0/8",
    "carrier-grade NAT": "100.64.0.0/10",
    "loopback": "127.0.0.0/8",
    "Azure host agent": "168.63.129.16/32",
    "link-local": "169.254.0.0/16",
    "private, middle": "172.16.0.0/12",
    "protocol assignments": "192.0.0.0/24",
    "documentation 1": "192.0.2.0/24",
    "AS112": "192.31.196.0/24",
    "AMT": "192.52.193.0/24",
    "6to4 relays": "192.88.99.0/24",
    "private, small": "192.168.0.0/16",
    "AS112, delegated": "192.175.48.0/24",
    "benchmarks": "198.18.0.0/15",
    "documentation 2": "198.51.100.0/24",
    "documentation 3": "203.0.113.0/24",
    "multicast and reserved": "224.0.0.0/3",
}
"""IPv4 networks that are not public, written out independently of `SPECIAL_NETWORKS`."""
NETWORKS_4 = [IPv4Network(text) for text in INTERNAL_4.values()]
LAST_4 = 2**32 - 1
"""The last IPv4 address."""

NOT_PUBLIC = {
    "loopback": "127.0.0.1",
    "loopback, another": "127.255.255.254",
    "private 10/8": "10.0.0.1",
    "private 172.16/12": "172.16.0.1",
    "private 172.16/12, last": "172.31.255.255",
    "private 192.168/16": "192.168.1.1",
    "link-local": "169.254.1.1",
    "metadata, AWS and others": "169.254.169.254",
    "metadata, AWS containers": "169.254.170.2",
    "metadata, Alibaba": "100.100.100.200",
    "metadata, Oracle": "192.0.0.192",
    "metadata, Azure": "168.63.129.16",
    "carrier-grade NAT": "100.64.0.1",
    "multicast": "224.0.0.1",
    "multicast, SSDP": "239.255.255.250",
    "unspecified": "0.0.0.0",
    "this network": "0.1.2.3",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "TEST-NET-1": "192.0.2.1",
    "TEST-NET-2": "198.51.100.1",
    "TEST-NET-3": "203.0.113.1",
    "loopback, IPv6": "::1",
    "unspecified, IPv6": "::",
    "mapped loopback": "::ffff:127.0.0.1",
    "mapped metadata": "::ffff:169.254.169.254",
    "mapped private": "::ffff:10.0.0.1",
    "mapped public": "::ffff:8.8.8.8",
    "translated (SIIT)": "::ffff:0:127.0.0.1",
    "compatible loopback": "::127.0.0.1",
    "compatible public": "::8.8.8.8",
    "6to4 of loopback": "2002:7f00:1::",
    "6to4 of metadata": "2002:a9fe:a9fe::",
    "6to4 of a public address": "2002:808:808::1",
    "NAT64 of loopback": "64:ff9b::127.0.0.1",
    "NAT64 of a public address": "64:ff9b::8.8.8.8",
    "NAT64, local": "64:ff9b:1::169.254.169.254",
    "Teredo": "2001::1",
    "Teredo of loopback": "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "benchmarks, IPv6": "2001:2::1",
    "ORCHID": "2001:20::1",
    "documentation, IPv6": "2001:db8::1",
    "documentation, IPv6, new": "3fff::1",
    "discard": "100::1",
    "segment routing": "5f00::1",
    "site-local": "fec0::1",
    "unique local": "fc00::1",
    "unique local, assigned": "fd12:3456:789a::1",
    "metadata, AWS, IPv6": "fd00:ec2::254",
    "metadata, Google, IPv6": "fd20:ce::254",
    "link-local, IPv6": "fe80::1",
    "link-local with a scope": "fe80::1%eth0",
    "public with a scope": "2606:4700:4700::1111%1",
    "ISATAP of loopback": "2606:4700::5efe:127.0.0.1",
    "ISATAP, unique": "2606:4700::200:5efe:10.0.0.1",
    "multicast, IPv6": "ff02::1",
    "multicast, IPv6, global": "ff0e::1",
    "unassigned": "4000::1",
    "last address": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
}
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "192.0.1.1",
    "172.217.16.142",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2003::1",
    "2400:cb00:2048:1::c629:d7a2",
    "2606:4700:4700::1111",
    "2620:fe::fe",
    "2a00:1450:4001:82b::200e",
]


def neighbours_of(network: IPv4Network) -> list[IPv4Address]:
    """Return the public addresses next to *network*."""
    numbers = (int(network.network_address) - 1, int(network.broadcast_address) + 1)
    addresses = [IPv4Address(number) for number in numbers if 0 <= number <= LAST_4]
    return [address for address in addresses if not any(address in other for other in NETWORKS_4)]


NEIGHBOURS = sorted({str(ip) for network in NETWORKS_4 for ip in neighbours_of(network)})


async def check_host(address: str) -> None:
    """Check a webhook whose host resolves to *address*."""

    async def resolve(host: str, port: int, principal: str) -> list[str]:
        return [address]

    await Guard(PushSettings(), resolve).check("https://hooks.example.com/", "ada")


@pytest.mark.anyio
@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC)
async def test_a_host_with_an_internal_address_is_refused(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(RefusedError):
        await check_host(address)


@pytest.mark.anyio
@pytest.mark.parametrize("address", PUBLIC)
async def test_a_host_with_a_public_address_is_allowed(address: str) -> None:
    assert is_public(ip_address(address))
    await check_host(address)


@pytest.mark.parametrize("network", NETWORKS_4, ids=INTERNAL_4)
def test_the_first_middle_and_last_address_of_an_internal_network_are_not_public(
    network: IPv4Network,
) -> None:
    middle = network[network.num_addresses // 2]
    for address in (network[0], network[-1], middle):
        assert not is_public(address)


@pytest.mark.anyio
@pytest.mark.parametrize("address", NEIGHBOURS)
async def test_the_addresses_next_to_an_internal_network_are_allowed(address: str) -> None:
    await check_host(address)


def test_both_neighbours_of_almost_every_internal_network_are_public() -> None:
    assert len(NEIGHBOURS) == 2 * len(NETWORKS_4) - 2  # none before the first, none after the last
    assert {"9.255.255.255", "11.0.0.0", "168.63.129.15", "168.63.129.17"} <= set(NEIGHBOURS)


def test_the_internal_networks_do_not_overlap() -> None:
    pairs = combinations(NETWORKS_4, 2)
    assert not any(first.overlaps(second) for first, second in pairs)


@given(st.ip_addresses(v=4).map(str))
@example("100.63.255.255")
@example("100.128.0.0")
def test_ipv4_addresses_outside_of_the_internal_networks_are_public(text: str) -> None:
    address = IPv4Address(text)
    assert is_public(address) is not any(address in network for network in NETWORKS_4)


@given(st.ip_addresses().map(str))
def test_no_address_is_public_that_python_does_not_call_global(text: str) -> None:
    address = ip_address(text)
    if is_public(address):
        assert address.is_global
        assert not (address.is_multicast)
        assert not (address.is_reserved)


EMBEDDINGS = {
    "compatible": lambda inner: inner,
    "mapped": lambda inner: 0xFFFF << 32 | inner,
    "NAT64": lambda inner: 0x0064_FF9B << 96 | inner,
    "NAT64, local": lambda inner: 0x0064_FF9B_0001 << 80 | inner,
    "6to4": lambda inner: 0x2002 << 112 | inner << 80 | 1,
    "Teredo": lambda inner: 0x2001_0000 << 96 | (inner ^ LAST_4),
    "ISATAP": lambda inner: 0x2606_4700 << 96 | 0x5EFE << 32 | inner,
}


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@given(inner=st.integers(0, LAST_4))
@example(inner=int(IPv4Address("8.8.8.8")))
def test_no_address_that_embeds_another_is_public(embedding: str, inner: int) -> None:
    assert not is_public(IPv6Address(EMBEDDINGS[embedding](inner)))


@pytest.mark.parametrize("prefix", ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"])
def test_a_prefix_that_is_not_public_is_followed_by_a_public_address(prefix: str) -> None:
    network = IPv6Network(prefix)
    assert not is_public(network[0])
    assert not is_public(network[-1])
    assert is_public(IPv6Address(int(network[-1]) + 1))


def test_the_ends_of_2000_3_are_public_and_the_addresses_next_to_them_are_not() -> None:
    first, last = IPv6Address("2000::"), IPv6Address("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
    assert list(summarize_address_range(first, last)) == [IPv6Network("2000::/3")]
    assert is_public(first)
    assert is_public(last)
    assert not is_public(first - 1)
    assert not is_public(last + 1)


# Addresses that are always forbidden


FORBIDDEN = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "::ffff:100.100.100.200",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "0.0.0.0",
    "::",
    "::ffff:0.0.0.0",
    "224.0.0.1",
    "ff02::1",
    "::ffff:224.0.0.1",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_metadata_unspecified_and_multicast_addresses_are_always_forbidden(address: str) -> None:
    assert is_forbidden(ip_address(address))


def test_a_scope_does_not_permit_a_forbidden_address() -> None:
    assert is_forbidden(ip_address("fd00:ec2::254%1"))
    assert is_forbidden(ip_address("ff02::1%1"))
    assert is_forbidden(ip_address("::ffff:169.254.169.254%1"))


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "::1", "fd00::1", "8.8.8.8"])
def test_other_addresses_can_be_permitted(address: str) -> None:
    assert not is_forbidden(ip_address(address))
