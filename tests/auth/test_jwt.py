"""Keys that are given, options, and whom good tokens make known."""

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
    bearing,
    certificate,
    claims,
    known,
    token,
    with_hmac,
)
from .tokens import silent as silent

VARIABLE = "APCORE_JWT_SECRET"
PAIRS = [RSA, PSS, P256, P384, ED25519, ED448]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.alg + pair.kid)


def authenticator(key: Any = RSA.pem, **options: Any) -> JWTAuthenticator:
    return JWTAuthenticator(key, **{"issuer": ISSUER, "audience": AUDIENCE, **options})


def is_known(authenticator: Authenticator, token: str) -> bool:
    identity = known(authenticator, bearing(token))
    return identity is not None and identity.id == SUBJECT


def refusal(*args: Any, **options: Any) -> str:
    """Why there is no such authenticator."""
    with pytest.raises(ConfigurationError) as caught:
        JWTAuthenticator(*args, **options)
    return str(caught.value)


# Keys


@pairs
@pytest.mark.parametrize("form", ["bytes", "str", "path", "certificate"])
def test_a_public_key_is_taken_in_any_form(pair: KeyPair, form: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"\n" + pair.pem + b"\n")
    forms: dict[str, Callable[[], Any]] = {
        "bytes": lambda: pair.pem,
        "str": pair.pem.decode,
        "path": lambda: path,
        "certificate": lambda: certificate(pair),
    }
    assert is_known(authenticator(forms[form]()), token(pair))


@pairs
def test_a_public_key_takes_no_token_of_another(pair: KeyPair) -> None:
    others = [each for each in PAIRS if each.private is not pair.private]
    assert not any(is_known(authenticator(pair.pem), token(other)) for other in others)


@pytest.mark.parametrize("alg", ["HS256", "HS384"])
@pytest.mark.parametrize("form", ["bytes", "str", "path"])
def test_a_secret_is_taken_in_any_form(form: str, alg: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    forms: dict[str, Any] = {"bytes": SECRET.encode(), "str": SECRET, "path": path}
    assert is_known(authenticator(forms[form]), with_hmac(SECRET.encode(), alg))


def test_a_secret_takes_only_algorithms_that_it_is_long_enough_for() -> None:
    assert len(SECRET) == 48
    assert not is_known(authenticator(SECRET), with_hmac(SECRET.encode(), "HS512"))
    longer = SECRET * 2
    assert is_known(authenticator(longer), with_hmac(longer.encode(), "HS512"))


@pytest.mark.parametrize("pair", [RSA, P256, ED25519], ids=lambda pair: pair.alg)
def test_a_private_key_is_refused_and_not_shown(pair: KeyPair) -> None:
    text = refusal(pair.private_pem)
    assert "private key" in text
    assert "public" in text
    assert pair.private_pem.splitlines()[1].decode() not in text


@pytest.mark.parametrize("secret", ["", "x", "s3cr3t" * 5, b"\0" * 31])
def test_a_short_secret_is_refused_with_a_way_to_a_better_one(secret: Any) -> None:
    text = refusal(secret)
    assert f"{len(secret)} bytes" in text
    assert "32" in text
    assert "openssl rand" in text
    assert not secret or "s3cr3t" not in text


def test_a_short_rsa_key_is_refused_with_what_would_do() -> None:
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
def test_a_key_that_signs_no_tokens_is_refused(private: Any) -> None:
    assert "can't check tokens" in refusal(KeyPair("", "", private).pem)


@pytest.mark.parametrize(
    "text",
    [
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        RSA.pem[:99],
        RSA.pem.replace(b"\n", rb"\n"),
        RSA.pem.replace(b"PUBLIC KEY", b"PGP MESSAGE"),
    ],
    ids=["no key", "no certificate", "cut", "escaped", "of another kind"],
)
def test_a_broken_key_is_refused(text: bytes) -> None:
    assert "no public key" in refusal(text)


@pytest.mark.parametrize("name", ["missing.pem", "."])
def test_a_key_that_cannot_be_read_is_refused_by_its_path(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / name) in refusal(tmp_path / name)


# Where the key comes from


@pytest.mark.parametrize(
    ("value", "good"), [(SECRET, with_hmac(SECRET.encode())), (RSA.pem.decode(), token())]
)
def test_the_key_comes_from_the_environment(
    value: str, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert is_known(authenticator(None, issuer=None), good)


def test_without_a_key_there_is_no_authenticator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VARIABLE in refusal()
    monkeypatch.setenv(VARIABLE, "")
    assert VARIABLE in refusal()


def test_a_key_that_is_given_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    assert is_known(authenticator(RSA.pem), token())
    assert not is_known(authenticator(RSA.pem), with_hmac(SECRET.encode()))


def test_a_set_of_keys_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with running(Issuer()) as issuer:
        found = authenticator(None, jwks_url=issuer.jwks_url)
        assert is_known(found, token())
        assert not is_known(found, with_hmac(SECRET.encode()))


def test_an_issuer_with_an_address_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with running(Issuer(RSA)) as issuer:
        assert is_known(authenticator(None, issuer=issuer.url), token(iss=issuer.url))


def test_an_issuer_without_one_is_checked_with_the_key_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    found = authenticator(None, issuer="accounts")
    assert is_known(found, jwt.encode(claims(iss="accounts"), SECRET, "HS256"))
    assert not is_known(found, jwt.encode(claims(iss="others"), SECRET, "HS256"))


def test_a_variable_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "\udcff" * 32)
    refusal()


def test_a_key_and_a_set_of_keys_are_too_many() -> None:
    assert "not both" in refusal(SECRET, jwks_url="https://idp.example.com/keys")


@pytest.mark.parametrize("option", ["jwks_url", "issuer"])
@pytest.mark.parametrize("url", ["idp.example.com", "ftp://idp.example.com", "file:///etc/passwd"])
def test_keys_are_fetched_from_the_web_alone(option: str, url: str) -> None:
    assert "https://" in refusal(**{option: url})


@pytest.mark.parametrize("options", [{"jwks_url": ""}, {"issuer": ""}, {"jwks_url": "https://"}])
def test_an_address_without_a_host_is_refused(options: dict[str, Any]) -> None:
    refusal(**options)


def test_an_address_without_encryption_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    JWTAuthenticator(jwks_url="http://idp.example.com/keys")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# Options


@pytest.mark.parametrize("algorithms", [["none"], ["RS256", "HS1"], "RS256", ["ES521"]])
def test_algorithms_that_are_none_are_refused(algorithms: Any) -> None:
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
def test_algorithms_that_do_not_fit_the_key_are_refused(key: Any, algorithms: list[str]) -> None:
    assert "the key takes" in refusal(key, algorithms=algorithms)


def test_a_set_of_keys_takes_no_shared_secrets() -> None:
    refusal(jwks_url="https://idp.example.com/keys", algorithms=["HS256"])


def test_only_the_algorithms_that_are_asked_for_are_taken() -> None:
    found = authenticator(algorithms=["PS256"])
    assert is_known(found, token(PSS))
    assert not is_known(found, token(RSA))


def test_published_keys_are_taken_by_the_algorithms_that_are_asked_for() -> None:
    with running(Issuer(RSA, P256)) as issuer:
        found = authenticator(None, jwks_url=issuer.jwks_url, algorithms=["ES256"])
        assert is_known(found, token(P256))
        assert not is_known(found, token(RSA))


@pytest.mark.parametrize("leeway", [-1, -0.001])
def test_clocks_differ_by_no_negative_time(leeway: float) -> None:
    assert "leeway" in refusal(SECRET, leeway=leeway)


@pytest.mark.parametrize("leeway", [float("nan"), float("inf")])
def test_clocks_differ_by_a_time_that_ends(leeway: float) -> None:
    refusal(SECRET, leeway=leeway)


@pytest.mark.parametrize(("claim", "sign"), [("exp", -1), ("nbf", 1), ("iat", 1)])
def test_clocks_may_differ_by_a_minute(claim: str, sign: int) -> None:
    now = time.time()
    assert is_known(authenticator(), token(**{claim: now + sign * 30}))
    assert not is_known(authenticator(), token(**{claim: now + sign * 120}))


def test_clocks_may_differ_by_as_much_as_is_asked_for() -> None:
    now = time.time()
    assert is_known(authenticator(leeway=300), token(exp=now - 120))
    assert not is_known(authenticator(leeway=0), token(exp=now - 1))


def test_one_audience_of_several_is_enough() -> None:
    found = authenticator(audience=["another", AUDIENCE])
    assert is_known(found, token(aud=["a-third", AUDIENCE]))
    assert not is_known(found, token(aud=["a-third"]))


def test_without_an_audience_tokens_for_somebody_are_refused() -> None:
    assert is_known(authenticator(audience=None), token(aud=MISSING))
    assert not is_known(authenticator(audience=None), token())


def test_without_an_issuer_anybody_may_have_issued_a_token() -> None:
    assert is_known(authenticator(issuer=None), token(iss="https://another.example.com"))
    assert is_known(authenticator(issuer=None), token(iss=MISSING))


@pytest.mark.parametrize("value", [MISSING, None])
def test_a_token_without_a_claim_that_is_required_is_refused(value: Any) -> None:
    found = authenticator(required_claims=["exp", "scope"])
    assert is_known(found, token(scope=""))
    assert not is_known(found, token(scope=value))


def test_a_token_may_last_for_ever_when_that_is_asked_for() -> None:
    assert is_known(authenticator(required_claims=[]), token(exp=MISSING))
    assert not is_known(authenticator(required_claims=[]), token(exp=1))


def test_required_claims_are_no_single_string() -> None:
    refusal(SECRET, required_claims="exp")


# Who is known, and what the Agent Card says


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_of_the_header_has_no_case(scheme: str) -> None:
    assert known(authenticator(), {"authorization": f"{scheme} {token()}"})


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"x-api-key": "k"}])
def test_who_has_no_token_is_nobody(headers: dict[str, str]) -> None:
    assert known(authenticator(), headers) is None


def test_who_has_no_token_makes_nobody_fetch_keys() -> None:
    with running(Issuer()) as issuer:
        assert known(authenticator(None, jwks_url=issuer.jwks_url), {}) is None
        assert not issuer.connections


def test_a_good_token_makes_its_bearer_known() -> None:
    told = {"email": "ada@example.com", "name": "Ada", "roles": ["admin"], "type": "service"}
    attrs = {"iss": ISSUER, "sub": SUBJECT, **told}
    identity = Identity(SUBJECT, type="service", roles=("admin",), attrs=attrs)
    assert known(authenticator(), bearing(token(**told))) == identity


def test_claims_become_an_identity_as_they_are_mapped() -> None:
    found = authenticator(claim_mapping=ClaimMapping(id="email", roles="scope", attrs={}))
    made = token(email="ada@example.com", scope="read write")
    identity = Identity("ada@example.com", roles=("read", "write"), attrs={"iss": ISSUER})
    assert known(found, bearing(made)) == identity


def test_it_is_an_authenticator_that_declares_a_bearer_token() -> None:
    found = authenticator()
    assert isinstance(found, Authenticator)
    [(name, scheme)] = found.security_schemes().items()
    assert name == "bearer"
    assert scheme.http_auth_security_scheme.scheme == "bearer"


def test_it_declares_its_issuer_when_that_is_asked_for_keys() -> None:
    found = JWTAuthenticator(issuer=ISSUER).security_schemes()
    assert [*found] == ["bearer", "oidc"]
    url = found["oidc"].open_id_connect_security_scheme.open_id_connect_url
    assert url == f"{ISSUER}/.well-known/openid-configuration"


def test_it_declares_other_schemes_when_it_is_told_to() -> None:
    found = authenticator(schemes={"gateway": api_key("X-Gateway")}).security_schemes()
    assert [*found] == ["bearer", "gateway"]
