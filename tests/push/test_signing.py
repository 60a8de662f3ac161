"""Signatures of notifications follow Standard Webhooks for any content."""

import hmac
from base64 import b64decode
from typing import Any

import pytest
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.settings import origin_of
from apcore_a2a_server.push.signing import Signer, receiver_secret
from standardwebhooks import Webhook, WebhookVerificationError

SECRET = "whsec_" + "c2VjcmV0" * 4
OTHER_SECRET = "whsec_" + "QUJDREVG" * 4
ORIGIN = "https://hooks.example.com"


@pytest.mark.parametrize("text", ["{}", "Grüße", "\u4f60\u597d", "\U0001f600"])
def test_a_receiver_accepts_the_signature_of_any_text(text: str) -> None:
    body = f'{{"text":"{text}"}}'.encode()
    headers = dict(Signer([SECRET]).headers("n1", body, f"{ORIGIN}/hook"))

    assert Webhook(receiver_secret(SECRET, ORIGIN)).verify(body, headers)


def test_a_receiver_cannot_forge_notifications_for_another() -> None:
    signer = Signer([SECRET])
    own_secrets, other_secrets = (
        signer.secrets(f"{ORIGIN}/a"),
        signer.secrets("https://other.example/a"),
    )
    assert own_secrets != other_secrets
    assert SECRET not in own_secrets
    forged = dict(Signer({"*": own_secrets}).headers("n1", b"{}", "https://other.example/a"))
    with pytest.raises(WebhookVerificationError):
        Webhook(other_secrets[0]).verify(b"{}", forged)


def test_the_secret_of_a_receiver_is_the_hmac_of_its_origin() -> None:
    """The documentation describes the computation, so that other tools can repeat it."""
    key = b64decode(SECRET.removeprefix("whsec_"))
    expected = hmac.new(key, ORIGIN.encode(), "sha256").digest()
    (secret,) = Signer([SECRET]).secrets(ORIGIN)
    assert b64decode(secret.removeprefix("whsec_")) == expected


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://hooks.example.com", "https://hooks.example.com"),
        ("HTTPS://Hooks.Example.COM:443/a?b#c", "https://hooks.example.com"),
        ("https://hooks.example.com.:8443/", "https://hooks.example.com:8443"),
        ("http://hooks.example.com:80/", "http://hooks.example.com"),
        ("http://hooks.example.com:443/", "http://hooks.example.com:443"),
        ("https://[2001:db8::1]:8443/x", "https://[2001:db8::1]:8443"),
        ("https://hooks.example.com/@ada?to=bob@example.com", "https://hooks.example.com"),
    ],
)
def test_all_urls_of_an_origin_have_one_secret(url: str, origin: str) -> None:
    assert origin_of(url) == origin
    assert Signer([SECRET]).secrets(url) == [receiver_secret(SECRET, origin)]


@pytest.mark.parametrize(
    "url",
    [
        "hooks.example.com",
        "ftp://h",
        "https://",
        "https://user@h",
        "https://h:x",
        "https://h:99999",
        "https://[::1",
        "https://bücher.example",
        "https://h /",
    ],
)
def test_a_url_that_no_webhook_can_have_has_no_secret(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # some errors are of urlsplit
        Signer([SECRET]).secrets(url)


def test_while_secrets_are_rotated_each_signs_for_the_receiver() -> None:
    headers = dict(Signer([OTHER_SECRET, SECRET]).headers("n1", b"{}", ORIGIN))
    for secret in (OTHER_SECRET, SECRET):
        assert Webhook(receiver_secret(secret, ORIGIN)).verify(b"{}", headers) == {}
    assert Signer([OTHER_SECRET, SECRET]).secrets(ORIGIN)[0] == receiver_secret(
        OTHER_SECRET, ORIGIN
    )


@pytest.mark.parametrize(
    "secrets",
    [
        {ORIGIN: OTHER_SECRET, "*": SECRET},
        {f"{ORIGIN}:443/": [OTHER_SECRET], "*": [SECRET]},
        [SECRET, f"{ORIGIN}={OTHER_SECRET}"],
        (f"https://Hooks.example.com={OTHER_SECRET}", SECRET),
    ],
)
def test_an_explicit_secret_signs_only_for_its_receiver(secrets: Any) -> None:
    signer = Signer(PushSettings(secrets=secrets).secrets)
    assert signer.secrets(f"{ORIGIN}/hook") == [OTHER_SECRET]
    other_url = "https://other.example"
    assert signer.secrets(other_url) == [receiver_secret(SECRET, other_url)]


def test_explicit_secrets_can_be_rotated() -> None:
    explicit_secrets = {ORIGIN: [OTHER_SECRET, SECRET]}
    assert Signer(explicit_secrets).secrets(ORIGIN) == [OTHER_SECRET, SECRET]
    assert Signer([f"{ORIGIN}={OTHER_SECRET}", f"{ORIGIN}={SECRET}"]).secrets(ORIGIN) == [
        OTHER_SECRET,
        SECRET,
    ]


def test_without_a_secret_for_a_receiver_its_notifications_are_not_signed() -> None:
    headers = dict(Signer({ORIGIN: OTHER_SECRET}).headers("n1", b"{}", "https://other.example"))
    assert "webhook-signature" not in headers


@pytest.mark.parametrize(
    "secrets",
    [
        SECRET,
        5,
        {SECRET},
        [5],
        ["hunter2"],
        [f"{ORIGIN}=hunter2"],
        [f"{ORIGIN}="],
        {ORIGIN: "hunter2"},
        {ORIGIN: None},
        {ORIGIN: [SECRET, "hunter2"]},
        {f"{ORIGIN}/hook": SECRET},
        {f"{ORIGIN}?x": SECRET},
        {"hooks.example.com": SECRET},
        {"https://hunter2@h": SECRET},
        {"": SECRET},
        {5: SECRET},
    ],
)
def test_invalid_secrets_are_refused_and_not_repeated(secrets: Any) -> None:
    with pytest.raises(OptionError, match=r"^secrets must") as caught:
        PushSettings(secrets=secrets)
    assert "hunter2" not in str(caught.value)
    assert SECRET[6:] not in str(caught.value)


def test_the_repr_of_the_settings_contains_no_secrets() -> None:
    assert SECRET[6:] not in repr(PushSettings(secrets={ORIGIN: SECRET}))
