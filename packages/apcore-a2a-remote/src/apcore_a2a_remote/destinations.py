"""Rules for the hosts to which the card of a remote agent, or a redirect, may lead."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from apcore_a2a_client import Destination
from apcore_a2a_core.addresses import HostList, is_forbidden, network_level


class DestinationRules:
    """Rules that keep a public agent from leading its callers into their own network.

    An agent may lead to addresses that are no more private than its own: an agent on the internet
    only to the internet, an agent in a private network also to private networks, and an agent on
    this machine to all addresses. Metadata services of clouds are never allowed.

    Args:
        private_hosts: Names, addresses and networks to which all agents may lead, or `*` for any.

    Raises:
        ValueError: *private_hosts* is a string, or contains an invalid network.

    Example:
        ```python
        from apcore_a2a_client import Destination
        from apcore_a2a_remote.destinations import DestinationRules

        rules = DestinationRules(["10.1.0.0/16"])
        print(rules(Destination("db.example", "10.1.0.7", "93.184.215.14")))
        #> True
        print(rules(Destination("db.example", "10.2.0.7", "93.184.215.14")))
        #> False
        ```
    """

    def __init__(self, private_hosts: Sequence[str] = ()) -> None:
        if isinstance(private_hosts, str):
            raise ValueError("private_hosts must be a list of names and networks")
        self._hosts = HostList(private_hosts)

    def __call__(self, destination: Destination) -> bool:
        """Return whether to connect to a destination."""
        if not destination.address:  # an unusual transport, which does not reveal the address
            return False
        address = ip_address(destination.address)
        if is_forbidden(address):
            return False
        hosts = self._hosts
        if hosts.has_star or hosts.has_name(destination.host) or hosts.has_address(address):
            return True
        source = destination.source
        return network_level(address) <= (network_level(ip_address(source)) if source else 0)
