"""Guard for webhooks: valid URLs, and hosts that an operator may allow."""

from collections.abc import Mapping

import pytest
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.guard import MAX_URL, NOT_PUBLIC, Guard, RefusedError, Resolve

from tests.server.inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

OUTSIDE, INSIDE, METADATA = "93.184.215.14", "10.1.2.3", "169.254.169.254"
PROXY = "http://proxy.example.com:3128"
HOOK = "https://hooks.example.com/"


def resolver_for(addresses: Mapping[str, list[str]] | str) -> Resolve:
    """Return a resolver with these names, or one address for all names."""

    async def resolve(host: str, port: int, principal: str) -> list[str]:
        if isinstance(addresses, str):
            return [addresses]
        if host not in addresses:
            raise OSError("unknown")
        return addresses[host]

    return resolve


async def unused_resolver(host: str, port: int, principal: str) -> list[str]:
    """Raise an error: the test expects that no host is resolved."""
    raise AssertionError(host)


async def refusal(guard: Guard, url: str) -> str:
    """Return the message with which a URL is refused."""
    with pytest.raises(RefusedError) as caught:
        await guard.check(url, "ada")
    return str(caught.value)


# Form of the URL


WELL_FORMED = [
    HOOK,
    "https://hooks.example.com",
    "HTTPS://HOOKS.EXAMPLE.COM/",
    "https://hooks.example.com./a",
    "https://hooks.example.com:443/a/b?c=d&e=%20#f",
    "https://hooks.example.com:8443/",
    "https://hooks.example.com/who@where",
    "https://hooks.example.com?who@where",
    "https://my_hooks.example.com/",
    "https://xn--bcher-kva.example/",
    "https://8.8.8.8/",
    "https://[2606:4700:4700::1111]/",
]


@pytest.mark.parametrize("url", WELL_FORMED)
async def test_a_url_of_a_public_host_is_allowed(url: str) -> None:
    await Guard(PushSettings(), resolver_for(OUTSIDE)).check(url, "ada")


INVALID = {
    "nothing": "",
    "no scheme": "hooks.example.com",
    "no scheme, slashes": "//hooks.example.com/",
    "ftp": "ftp://hooks.example.com/",
    "file": "file:///etc/passwd",
    "gopher": "gopher://hooks.example.com:443/_",
    "javascript": "javascript:alert(1)",
    "data": "data:text/plain,hello",
    "web socket": "wss://hooks.example.com/",
    "unix socket": "unix:///run/docker.sock",
    "http in https": "https+http://hooks.example.com/",
    "user": "https://me@hooks.example.com/",
    "user and password": "https://me:secret@hooks.example.com/",
    "empty user": "https://@hooks.example.com/",
    "host as user": "https://hooks.example.com@127.0.0.1/",
    "host and port as user and password": "https://hooks.example.com:443@127.0.0.1/",
    "backslash": "https://hooks.example.com\\@127.0.0.1/",
    "backslashes": "https:\\\\hooks.example.com/",
    "space": "https://hooks.example.com/a b",
    "space before": " https://hooks.example.com/",
    "newline at the end": "https://hooks.example.com/\n",
    "tab in the scheme": "ht\ttps://hooks.example.com/",
    "newline in the host": "https://127.0\n.0.1/",
    "another header": "https://hooks.example.com/\r\nX-Evil:1",
    "null": "https://hooks.example.com/\0",
    "null in the host": "https://127.0.0.1\0.example.com/",
    "delete character": "https://hooks.example.com/\x7f",
    "Latin-1 control character": "https://hooks.example.com/\x85",
    "letters beyond ASCII": "https://bücher.example/",
    "digits beyond ASCII": "https://①②⑦.⓪.⓪.①/",
    "dot beyond ASCII": "https://127。0。0。1/",
    "slash beyond ASCII": "https://hooks.example.com\uff0f@127.0.0.1/",
    "no host": "https://",
    "no host, but a path": "https:///hooks.example.com/",
    "no slashes": "https:hooks.example.com",
    "port without a host": "https://:443/",
    "empty label": "https://hooks..example.com/",
    "dot at the beginning": "https://.example.com/",
    "escaped host": "https://127%2e0%2e0%2e1/",
    "long label": f"https://{'a' * 64}.example.com/",
    "bracket": "https://[::1/",
    "name in brackets": "https://[hooks.example.com]/",
    "star": "https://*.example.com/",
    "two hosts": "https://hooks.example.com,127.0.0.1/",
    "port 0": "https://hooks.example.com:0/",
    "port below 0": "https://hooks.example.com:-1/",
    "port too high": "https://hooks.example.com:65536/",
    "port 443 + 2**16": "https://hooks.example.com:65979/",
    "port of letters": "https://hooks.example.com:https/",
    "port with a sign": "https://hooks.example.com:+443/",
    "port of ssh": "https://hooks.example.com:22/",
    "port of mail": "https://hooks.example.com:25/",
    "port of http": "https://hooks.example.com:80/",
    "port of redis": "https://hooks.example.com:6379/",
    "port 8080": "https://hooks.example.com:8080/",
    "too long": HOOK + "a" * (MAX_URL + 1 - len(HOOK)),
}


@pytest.mark.parametrize("url", INVALID.values(), ids=INVALID)
async def test_an_invalid_url_is_refused_before_its_host_is_resolved(url: str) -> None:
    assert await refusal(Guard(PushSettings(), unused_resolver), url) != NOT_PUBLIC
    assert await refusal(Guard(PushSettings(proxy=PROXY), unused_resolver), url) != NOT_PUBLIC


async def test_a_url_may_be_as_long_as_the_limit() -> None:
    await Guard(PushSettings(), resolver_for(OUTSIDE)).check(
        HOOK + "a" * (MAX_URL - len(HOOK)), "ada"
    )


async def test_http_is_refused_with_the_required_message() -> None:
    message = await refusal(Guard(PushSettings(), unused_resolver), "http://hooks.example.com/")
    assert message == "Webhook URL must use HTTPS in production mode"


async def test_the_allowed_ports_are_configurable() -> None:
    guard = Guard(PushSettings(ports=[9000]), resolver_for(OUTSIDE))
    await guard.check("https://hooks.example.com:9000/", "ada")
    assert "9000" in await refusal(guard, HOOK)


NOTATIONS_OF_INTERNAL_ADDRESSES = [
    "https://127.0.0.1/",
    "https://127.0.0.1./",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://017700000001/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::127.0.0.1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[0:0:0:0:0:ffff:7f00:1]/",
    "https://[v1.127]/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://169.254.169.254/latest/meta-data",
    "https://2852039166/",
]


@pytest.mark.parametrize("url", NOTATIONS_OF_INTERNAL_ADDRESSES)
async def test_an_internal_address_is_refused_in_any_notation(url: str) -> None:
    assert await refusal(Guard(PushSettings()), url) == NOT_PUBLIC
    assert await refusal(Guard(PushSettings(proxy=PROXY), unused_resolver), url) == NOT_PUBLIC


async def test_a_refusal_does_not_reveal_whether_an_internal_name_exists() -> None:
    addresses = {"db.corp.example": [INSIDE], "none.example": []}
    guard = Guard(PushSettings(), resolver_for(addresses))
    hosts = ("db.corp.example", "none.example", "unknown.corp.example", "10.0.0.1")
    assert {await refusal(guard, f"https://{host}/") for host in hosts} == {NOT_PUBLIC}
    for url in ("https://unknown.invalid/", "https://127.0.0.1/", f"https://{'a.' * 126}invalid/"):
        assert await refusal(Guard(PushSettings()), url) == NOT_PUBLIC


NOT_PUBLIC_ADDRESSES = [
    INSIDE,
    "127.0.0.1",
    METADATA,
    "::1",
    "::ffff:8.8.8.8",
    "fe80::1%2",
    "0.0.0.0",
]


@pytest.mark.parametrize("internal", NOT_PUBLIC_ADDRESSES)
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_one_internal_address_among_public_ones_is_refused(
    internal: str, position: int
) -> None:
    addresses = [OUTSIDE, "2606:4700:4700::1111"]
    addresses.insert(position, internal)
    guard = Guard(PushSettings(), resolver_for({"hooks.example.com": addresses}))
    assert await refusal(guard, HOOK) == NOT_PUBLIC


# Development mode


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/",
        "http://127.0.0.1/",
        "http://127.0.0.1:22/",
        "http://[::1]:6379/",
        "https://127.0.0.1/",
    ],
)
async def test_in_development_mode_a_webhook_may_be_on_loopback(url: str) -> None:
    await Guard(PushSettings(dev=True)).check(url, "ada")
    assert await refusal(Guard(PushSettings()), url)


INTERNAL = [INSIDE, "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.1.1", "fd00::1", "fe80::1"]
ALWAYS_REFUSED = [METADATA, "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"]
ALWAYS_REFUSED += [
    "::ffff:169.254.169.254",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "2002:a9fe:a9fe::",
]


@pytest.mark.parametrize("address", [*INTERNAL, *ALWAYS_REFUSED])
async def test_in_development_mode_internal_addresses_other_than_loopback_are_refused(
    address: str,
) -> None:
    guard = Guard(PushSettings(dev=True), resolver_for(address))
    assert await refusal(guard, "http://hooks.example.com/") == NOT_PUBLIC


async def test_development_mode_relaxes_only_the_scheme_the_port_and_loopback() -> None:
    guard = Guard(PushSettings(dev=True), unused_resolver)
    for url in ("ftp://localhost/", "http://me@localhost/", "http://", "http://localhost:65536/"):
        assert await refusal(guard, url)


async def test_configured_ports_hold_in_development_mode_too() -> None:
    assert await refusal(Guard(PushSettings(dev=True, ports=[80])), "http://127.0.0.1:81/")


@pytest.mark.parametrize(("dev", "schemes"), [(False, "https://"), (True, "https:// or http://")])
async def test_the_refusal_of_a_scheme_names_the_allowed_schemes(dev: bool, schemes: str) -> None:
    guard = Guard(PushSettings(dev=dev), unused_resolver)
    problem = await refusal(guard, "file:///etc/passwd")
    assert problem == f"The webhook's URL must begin with {schemes}"


# Allowed hosts


@pytest.mark.parametrize(
    ("allowed_host", "host"),
    [
        ("hooks.example.com", "hooks.example.com"),
        ("hooks.example.com", "HOOKS.Example.COM"),
        ("Hooks.EXAMPLE.com", "hooks.example.com"),
        ("hooks.example.com", "hooks.example.com."),
        ("*.example.com", "hooks.example.com"),
        ("*.example.com", "a.b.Example.com."),
        ("*.EXAMPLE.com", "hooks.example.com"),
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.0.0/16", "hooks.example.com"),
        ("10.1.0.0/16", "10.1.2.3"),
        ("10.1.2.3/32", "10.1.2.3"),
        ("intranet", "intranet"),
    ],
)
async def test_an_allowed_host_may_have_an_internal_address(allowed_host: str, host: str) -> None:
    for hosts in (
        [allowed_host],
        ["*", allowed_host],
        [allowed_host, "other.example.com", "172.16.0.0/12"],
    ):
        guard = Guard(PushSettings(allowed_hosts=hosts), resolver_for(INSIDE))
        await guard.check(f"https://{host}/", "ada")
    assert await refusal(Guard(PushSettings(), resolver_for(INSIDE)), f"https://{host}/")


@pytest.mark.parametrize("address", [INSIDE, OUTSIDE])
@pytest.mark.parametrize(
    ("allowed_host", "host"),
    [
        ("hooks.example.com", "example.com"),
        ("hooks.example.com", "a.hooks.example.com"),
        ("hooks.example.com", "hooks.example.com.evil.example"),
        ("hooks.example.com", "hooks-example.com"),
        ("*.example.com", "example.com"),
        ("*.example.com", "evilexample.com"),
        ("*.example.com", "hooks.example.com.evil.example"),
        ("*.example.com", "hooks.example.org"),
        ("10.2.0.0/16", "hooks.example.com"),
        ("2001:db8::/32", "hooks.example.com"),
    ],
)
async def test_hosts_and_addresses_that_are_not_listed_are_refused(
    allowed_host: str, host: str, address: str
) -> None:
    guard = Guard(PushSettings(allowed_hosts=[allowed_host]), resolver_for(address))
    assert await refusal(guard, f"https://{host}/") == NOT_PUBLIC
    assert await refusal(Guard(PushSettings(allowed_hosts=[]), resolver_for(address)), HOOK)


async def test_if_all_hosts_are_allowed_unlisted_hosts_must_still_be_public() -> None:
    addresses = {"db.corp.example": [INSIDE], "hooks.example.com": [OUTSIDE], "x.example": [INSIDE]}
    guard = Guard(PushSettings(allowed_hosts=["*", "db.corp.example"]), resolver_for(addresses))
    await guard.check(HOOK, "ada")
    await guard.check("https://db.corp.example/", "ada")
    assert await refusal(guard, "https://x.example/") == NOT_PUBLIC


async def test_every_address_must_be_in_an_allowed_network() -> None:
    addresses = {"hooks.example.com": [INSIDE, "10.2.0.1"]}
    narrow = Guard(PushSettings(allowed_hosts=["10.1.0.0/16"]), resolver_for(addresses))
    assert await refusal(narrow, HOOK) == NOT_PUBLIC
    settings = PushSettings(allowed_hosts=["10.1.0.0/16", "10.2.0.0/16"])
    await Guard(settings, resolver_for(addresses)).check(HOOK, "ada")


@pytest.mark.parametrize("address", ALWAYS_REFUSED)
async def test_forbidden_addresses_are_refused_even_on_allowed_hosts(address: str) -> None:
    all_hosts = ["*", "*.example.com", "hooks.example.com", "0.0.0.0/0", "::/0", address]
    for dev in (False, True):
        guard = Guard(PushSettings(dev=dev, allowed_hosts=all_hosts), resolver_for(address))
        assert await refusal(guard, HOOK) == NOT_PUBLIC
    literal = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    for proxy in (None, PROXY):
        guard = Guard(PushSettings(allowed_hosts=all_hosts, proxy=proxy))
        assert await refusal(guard, literal) == NOT_PUBLIC


@pytest.mark.parametrize("proxy", [None, PROXY])
@pytest.mark.parametrize("scope", ["", "%2", "%251", "%25lo"])
@pytest.mark.parametrize("address", ["fd00:ec2::254", "ff02::1", "::ffff:169.254.169.254", "::"])
async def test_a_scope_does_not_permit_a_forbidden_address(
    address: str, scope: str, proxy: str | None
) -> None:
    guard = Guard(PushSettings(proxy=proxy, allowed_hosts=["::/0"]), unused_resolver)
    assert await refusal(guard, f"https://[{address}{scope}]/")


@pytest.mark.parametrize("address", ["::1", "fe80::1", "fd00::1", "2606:4700:4700::1111"])
async def test_every_address_with_a_scope_is_refused(address: str) -> None:
    for proxy in (None, PROXY):
        guard = Guard(PushSettings(proxy=proxy), unused_resolver)
        assert await refusal(guard, f"https://[{address}%25lo]/")


# Proxy


async def test_names_are_resolved_by_the_proxy() -> None:
    await Guard(PushSettings(proxy=PROXY), unused_resolver).check(HOOK, "ada")
    await Guard(PushSettings(proxy=PROXY), unused_resolver).check("https://8.8.8.8/", "ada")
    await Guard(PushSettings(proxy=PROXY), unused_resolver).check("https://123.example.com/", "ada")


@pytest.mark.parametrize(
    "host",
    [
        "intranet",
        "localhost",
        "app.localhost",
        "printer.local",
        "PRINTER.LOCAL.",
        "metadata.google.internal",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "127.0.0.0x1",
        "10.0.0.1",
        "10.0.0.1.",
        "[fd00::1]",
        "[::ffff:8.8.8.8]",
    ],
)
async def test_behind_a_proxy_internal_hosts_are_refused_unless_listed(host: str) -> None:
    guard = Guard(PushSettings(proxy=PROXY), unused_resolver)
    assert await refusal(guard, f"https://{host}/") == NOT_PUBLIC
    if host[0].isalpha():
        named = PushSettings(proxy=PROXY, allowed_hosts=[host.rstrip(".")])
        await Guard(named, unused_resolver).check(f"https://{host}/", "ada")


async def test_behind_a_proxy_only_listed_hosts_are_allowed() -> None:
    hosts = ["*.example.com", "10.1.0.0/16"]
    guard = Guard(PushSettings(proxy=PROXY, allowed_hosts=hosts), unused_resolver)
    await guard.check(HOOK, "ada")
    await guard.check("https://10.1.2.3/", "ada")
    for host in ("example.org", "example.com", "10.2.0.1", "8.8.8.8"):
        assert await refusal(guard, f"https://{host}/") == NOT_PUBLIC


async def test_in_development_mode_a_proxy_may_connect_to_loopback() -> None:
    guard = Guard(PushSettings(proxy=PROXY, dev=True), unused_resolver)
    for host in ("localhost", "127.0.0.1", "[::1]"):
        await guard.check(f"http://{host}:8000/", "ada")
    for host in ("10.0.0.1", "intranet", METADATA):
        assert await refusal(guard, f"http://{host}:8000/") == NOT_PUBLIC


async def test_in_development_mode_a_proxy_may_connect_to_loopback_only_if_listed() -> None:
    settings = PushSettings(proxy=PROXY, dev=True, allowed_hosts=["hooks.example.com"])
    guard = Guard(settings, unused_resolver)
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert await refusal(guard, f"http://{host}:8000/") == NOT_PUBLIC
    for listed in ("localhost", "127.0.0.0/8"):
        settings = PushSettings(proxy=PROXY, dev=True, allowed_hosts=[listed])
        await Guard(settings, unused_resolver).check("http://localhost:8000/", "ada")
