"""Configured keys, options, and the identities of accepted tokens."""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from apcore import Identity
from apcore_a2a_auth import ClaimMapping, ConfigurationError, JWTAuthenticator, api_key
from apcore_a2a_core import Authenticator
from cryptography.hazmat.primitives.asymmetric import dsa, ec, x25519

from .issuer import Issuer, running
from .issuer import clock as clock
from .tokens import (
    AUDIENCE,
    ED448,
    ED25519,
    ISSUER,
    MISSING,
    P256,
    P384,
    PSS,
    RSA,
    SECRET,
    SUBJECT,
    WEAK,
    KeyPair,
    authenticate,
    bearer_headers,
    certificate,
    claims,
    refusal_reason,
    token,
    with_hmac,
)
from .tokens import no_secrets_logged as no_secrets_logged

VARIABLE = "APCORE_JWT_SECRET"
PAIRS = [RSA, PSS, P256, P384, ED25519, ED448]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.alg + pair.kid)


def authenticator(key: Any = RSA.pem, **options: Any) -> JWTAuthenticator:
    return JWTAuthenticator(key, **{"issuer": ISSUER, "audience": AUDIENCE, **options})


def accepts(authenticator: Authenticator, token: str) -> bool:
    identity = authenticate(authenticator, bearer_headers(token))
    return identity is not None and identity.id == SUBJECT


def refusal(*args: Any, **options: Any) -> str:
    """Return the message of the error that refuses these arguments."""
    with pytest.raises(ConfigurationError) as caught:
        JWTAuthenticator(*args, **options)
    return str(caught.value)


# Keys


@pairs
@pytest.mark.parametrize("form", ["bytes", "str", "path", "certificate"])
def test_a_public_key_is_accepted_in_any_form(pair: KeyPair, form: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"\n" + pair.pem + b"\n")
    forms: dict[str, Callable[[], Any]] = {
        "bytes": lambda: pair.pem,
        "str": pair.pem.decode,
        "path": lambda: path,
        "certificate": lambda: certificate(pair),
    }
    assert accepts(authenticator(forms[form]()), token(pair))


@pairs
def test_a_public_key_does_not_verify_tokens_of_another_key(pair: KeyPair) -> None:
    other_pairs = [other for other in PAIRS if other.private is not pair.private]
    assert not any(accepts(authenticator(pair.pem), token(other)) for other in other_pairs)


@pytest.mark.parametrize("alg", ["HS256", "HS384"])
@pytest.mark.parametrize("form", ["bytes", "str", "path"])
def test_a_secret_is_accepted_in_any_form(form: str, alg: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    forms: dict[str, Any] = {"bytes": SECRET.encode(), "str": SECRET, "path": path}
    assert accepts(authenticator(forms[form]), with_hmac(SECRET.encode(), alg))


def test_a_secret_is_not_used_for_algorithms_that_require_a_longer_one() -> None:
    assert len(SECRET) == 48
    assert not accepts(authenticator(SECRET), with_hmac(SECRET.encode(), "HS512"))
    longer = SECRET * 2
    assert accepts(authenticator(longer), with_hmac(longer.encode(), "HS512"))


@pytest.mark.parametrize("pair", [RSA, P256, ED25519], ids=lambda pair: pair.alg)
def test_a_private_key_is_refused_and_not_shown(pair: KeyPair) -> None:
    text = refusal(pair.private_pem)
    assert "private key" in text
    assert "public" in text
    assert pair.private_pem.splitlines()[1].decode() not in text


@pytest.mark.parametrize("name", ["2a8648ce3d0201", "2a8648ce3d030107"], ids=["type", "curve"])
def test_a_key_of_an_unknown_type_or_on_an_unknown_curve_is_refused(name: str) -> None:
    identifier = bytes.fromhex(name)
    unknown = P256.der.replace(identifier, identifier[:-1] + b"\x63")
    body = base64.encodebytes(unknown).decode()
    refusal(f"-----BEGIN PUBLIC KEY-----\n{body}-----END PUBLIC KEY-----\n")


@pytest.mark.parametrize("secret", ["", "x", "s3cr3t" * 5, b"\0" * 31])
def test_the_error_for_a_short_secret_says_how_to_make_a_longer_one(secret: Any) -> None:
    text = refusal(secret)
    assert f"{len(secret)} bytes" in text
    assert "32" in text
    assert "openssl rand" in text
    assert not secret or "s3cr3t" not in text


def test_the_error_for_a_short_rsa_key_states_the_required_length() -> None:
    assert "2048" in refusal(WEAK.pem)


@pytest.mark.parametrize(
    "private",
    [
        dsa.generate_private_key(2048),
        x25519.X25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP224R1()),
    ],
    ids=["dsa", "x25519", "p-224"],
)
def test_a_key_that_cannot_verify_tokens_is_refused(private: Any) -> None:
    assert "cannot verify signatures" in refusal(KeyPair("", "", private).pem)


@pytest.mark.parametrize(
    "text",
    [
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        RSA.pem[:99],
        RSA.pem.replace(b"\n", rb"\n"),
        RSA.pem.replace(b"PUBLIC KEY", b"PGP MESSAGE"),
    ],
    ids=["not a key", "not a certificate", "cut", "escaped", "of another kind"],
)
def test_a_broken_key_is_refused(text: bytes) -> None:
    assert "not a public key" in refusal(text)


@pytest.mark.parametrize("name", ["missing.pem", "."])
def test_the_error_for_an_unreadable_key_file_names_its_path(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / name) in refusal(tmp_path / name)


# Source of the key


@pytest.mark.parametrize(
    ("value", "valid_token"), [(SECRET, with_hmac(SECRET.encode())), (RSA.pem.decode(), token())]
)
def test_the_key_is_read_from_the_environment(
    value: str, valid_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert accepts(authenticator(None, issuer=None), valid_token)


def test_without_a_key_the_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VARIABLE in refusal()
    monkeypatch.setenv(VARIABLE, "")
    assert VARIABLE in refusal()


def test_an_explicit_key_takes_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    assert accepts(authenticator(RSA.pem), token())
    assert not accepts(authenticator(RSA.pem), with_hmac(SECRET.encode()))


def test_a_key_set_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with running(Issuer()) as issuer:
        jwt_authenticator = authenticator(None, jwks_url=issuer.jwks_url)
        assert accepts(jwt_authenticator, token())
        assert not accepts(jwt_authenticator, with_hmac(SECRET.encode()))


def test_an_issuer_url_takes_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with running(Issuer(RSA)) as issuer:
        assert accepts(authenticator(None, issuer=issuer.url), token(iss=issuer.url))


def test_with_an_issuer_that_is_not_a_url_the_key_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    jwt_authenticator = authenticator(None, issuer="accounts")
    assert accepts(jwt_authenticator, jwt.encode(claims(iss="accounts"), SECRET, "HS256"))
    assert not accepts(jwt_authenticator, jwt.encode(claims(iss="others"), SECRET, "HS256"))


def test_a_variable_that_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "\udcff" * 32)
    refusal()


def test_a_key_and_a_key_set_together_are_refused() -> None:
    assert "not both" in refusal(SECRET, jwks_url="https://idp.example.com/keys")


@pytest.mark.parametrize("option", ["jwks_url", "issuer"])
@pytest.mark.parametrize(
    "url",
    [
        "idp.example.com",
        "ftp://idp.example.com",
        "file:///etc/passwd",
        "https://idp.example.com:99999",
    ],
)
def test_keys_are_fetched_only_by_http(option: str, url: str) -> None:
    message = refusal(**{option: url})
    assert message.startswith(f"{option} must begin with https:// and have a host, such as ")
    assert f"not {url!r}" in message


@pytest.mark.parametrize("option", ["jwks_url", "issuer"])
def test_the_message_about_a_url_has_no_secrets(option: str) -> None:
    for scheme in ("ftp://", ""):
        message = refusal(**{option: f"{scheme}me:hunter2@idp.example.com/keys?token=hunter2"})
        assert f"not '{scheme}idp.example.com/keys'" in message
        assert "hunter2" not in message


@pytest.mark.parametrize("options", [{"jwks_url": ""}, {"issuer": ""}, {"jwks_url": "https://"}])
def test_a_url_without_a_host_is_refused(options: dict[str, Any]) -> None:
    refusal(**options)


def test_a_plain_http_url_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    JWTAuthenticator(jwks_url="http://me:hunter2@idp.example.com/keys")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message == (
        "jwks_url http://idp.example.com/keys is not https, so anyone on the network path can "
        "forge tokens: use https:// outside of development"
    )


# Options


@pytest.mark.parametrize("algorithms", [["none"], ["RS256", "HS1"], "RS256", ["ES521"], []])
def test_unknown_or_no_algorithms_are_refused(algorithms: Any) -> None:
    assert "HS256" in refusal(RSA.pem, algorithms=algorithms)


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (RSA.pem, ["HS256"]),
        (RSA.pem, ["RS256", "ES256"]),
        (P256.pem, ["ES384"]),
        (SECRET, ["RS256"]),
        (SECRET, ["HS256", "HS512"]),
    ],
)
def test_algorithms_that_do_not_match_the_key_are_refused(key: Any, algorithms: list[str]) -> None:
    assert "those of the key" in refusal(key, algorithms=algorithms)


def test_a_key_set_allows_no_algorithms_for_shared_secrets() -> None:
    refusal(jwks_url="https://idp.example.com/keys", algorithms=["HS256"])


def test_only_the_configured_algorithms_are_accepted() -> None:
    jwt_authenticator = authenticator(algorithms=["PS256"])
    assert accepts(jwt_authenticator, token(PSS))
    assert not accepts(jwt_authenticator, token(RSA))


def test_published_keys_are_used_only_with_the_configured_algorithms() -> None:
    with running(Issuer(RSA, P256)) as issuer:
        jwt_authenticator = authenticator(None, jwks_url=issuer.jwks_url, algorithms=["ES256"])
        assert accepts(jwt_authenticator, token(P256))
        assert not accepts(jwt_authenticator, token(RSA))


@pytest.mark.parametrize("key_id", [RSA.kid, "made-up"])
def test_the_reason_for_another_algorithm_does_not_reveal_which_keys_exist(key_id: str) -> None:
    with running(Issuer(RSA, P256)) as issuer:
        jwt_authenticator = authenticator(None, jwks_url=issuer.jwks_url, algorithms=["ES256"])
        headers = bearer_headers(token(RSA, {"kid": key_id}))
        assert refusal_reason(jwt_authenticator, headers) == "invalid signature"


@pytest.mark.parametrize("leeway", [-1, -0.001])
def test_a_negative_leeway_is_refused(leeway: float) -> None:
    assert "leeway" in refusal(SECRET, leeway=leeway)


@pytest.mark.parametrize("leeway", [float("nan"), float("inf")])
def test_a_leeway_that_is_not_finite_is_refused(leeway: float) -> None:
    refusal(SECRET, leeway=leeway)


@pytest.mark.parametrize(("claim", "sign"), [("exp", -1), ("nbf", 1), ("iat", 1)])
def test_clocks_may_differ_by_a_minute(claim: str, sign: int) -> None:
    now = time.time()
    assert accepts(authenticator(), token(**{claim: now + sign * 30}))
    assert not accepts(authenticator(), token(**{claim: now + sign * 120}))


def test_the_leeway_is_configurable() -> None:
    now = time.time()
    assert accepts(authenticator(leeway=300), token(exp=now - 120))
    assert not accepts(authenticator(leeway=0), token(exp=now - 1))


def test_one_of_several_audiences_is_enough() -> None:
    jwt_authenticator = authenticator(audience=["another", AUDIENCE])
    assert accepts(jwt_authenticator, token(aud=["a-third", AUDIENCE]))
    assert not accepts(jwt_authenticator, token(aud=["a-third"]))


def test_without_an_audience_tokens_with_one_are_refused() -> None:
    assert accepts(authenticator(audience=None), token(aud=MISSING))
    assert not accepts(authenticator(audience=None), token())


def test_without_an_issuer_tokens_of_any_issuer_are_accepted() -> None:
    assert accepts(authenticator(issuer=None), token(iss="https://another.example.com"))
    assert accepts(authenticator(issuer=None), token(iss=MISSING))


@pytest.mark.parametrize("value", [MISSING, None])
def test_a_token_without_a_required_claim_is_refused(value: Any) -> None:
    jwt_authenticator = authenticator(required_claims=["exp", "scope"])
    assert accepts(jwt_authenticator, token(scope=""))
    assert not accepts(jwt_authenticator, token(scope=value))


def test_a_token_may_be_valid_forever_if_exp_is_not_required() -> None:
    assert accepts(authenticator(required_claims=[]), token(exp=MISSING))
    assert not accepts(authenticator(required_claims=[]), token(exp=1))


def test_required_claims_may_not_be_a_string() -> None:
    refusal(SECRET, required_claims="exp")


# Identities and security schemes


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_of_the_header_is_case_insensitive(scheme: str) -> None:
    assert authenticate(authenticator(), {"authorization": f"{scheme} {token()}"})


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"x-api-key": "k"}])
def test_a_caller_without_a_token_is_not_authenticated(headers: dict[str, str]) -> None:
    assert authenticate(authenticator(), headers) is None


def test_a_caller_without_a_token_causes_no_fetch() -> None:
    with running(Issuer()) as issuer:
        assert authenticate(authenticator(None, jwks_url=issuer.jwks_url), {}) is None
        assert not issuer.connections


def test_an_accepted_token_becomes_an_identity() -> None:
    personal = {"email": "ada@example.com", "name": "Ada", "roles": ["admin"], "type": "service"}
    attrs = {"iss": ISSUER, "sub": SUBJECT, **personal}
    identity = Identity(SUBJECT, type="service", roles=("admin",), attrs=attrs)
    assert authenticate(authenticator(), bearer_headers(token(**personal))) == identity


def test_claims_are_mapped_as_configured() -> None:
    jwt_authenticator = authenticator(
        claim_mapping=ClaimMapping(id="email", roles="scope", attrs={})
    )
    valid_token = token(email="ada@example.com", scope="read write")
    identity = Identity("ada@example.com", roles=("read", "write"), attrs={"iss": ISSUER})
    assert authenticate(jwt_authenticator, bearer_headers(valid_token)) == identity


def test_a_jwt_authenticator_declares_a_bearer_token() -> None:
    jwt_authenticator = authenticator()
    assert isinstance(jwt_authenticator, Authenticator)
    [(name, scheme)] = jwt_authenticator.security_schemes().items()
    assert name == "bearer"
    assert scheme.http_auth_security_scheme.scheme == "bearer"


def test_an_issuer_whose_keys_are_discovered_is_declared() -> None:
    declared = JWTAuthenticator(issuer=ISSUER).security_schemes()
    assert [*declared] == ["bearer", "oidc"]
    url = declared["oidc"].open_id_connect_security_scheme.open_id_connect_url
    assert url == f"{ISSUER}/.well-known/openid-configuration"


def test_additional_schemes_are_declared() -> None:
    declared = authenticator(schemes={"gateway": api_key("X-Gateway")}).security_schemes()
    assert [*declared] == ["bearer", "gateway"]
