"""Mapping of claims to an identity."""

from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_auth import ClaimMapping
from hypothesis import given
from hypothesis import strategies as st

from .tokens import ISSUER, SUBJECT

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = ["sub", "type", "roles", "iss", "a", "a.b", "b", "."]
CLAIMS = st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON)
PATHS = st.sampled_from([*NAMES, "", "a.b.c", "a..b", ".a"]) | st.text("ab.")
MAPPINGS = st.builds(
    ClaimMapping,
    id=PATHS,
    type=PATHS,
    roles=PATHS,
    attrs=st.none() | st.dictionaries(st.text(), PATHS, max_size=3),
)


def identity_of(mapping: ClaimMapping | None = None, /, **claims: Any) -> Identity:
    identity = (mapping or ClaimMapping()).identity({"sub": SUBJECT, **claims})
    assert identity
    return identity


@given(CLAIMS, MAPPINGS)
def test_any_claims_map_to_a_valid_identity_or_to_none(claims: Any, mapping: ClaimMapping) -> None:
    identity = mapping.identity(claims)
    if identity is not None:
        assert isinstance(identity.id, str)
        assert identity.id
        assert isinstance(identity.type, str)
        assert identity.type
        assert all(isinstance(role, str) for role in identity.roles)


@pytest.mark.parametrize("sub", ["", None, 5, 0.5, True, ["ada"], {"id": "ada"}])
def test_without_an_id_there_is_no_identity(sub: Any) -> None:
    assert ClaimMapping().identity({"sub": sub}) is None
    assert ClaimMapping().identity({}) is None


def test_an_id_has_at_most_255_characters() -> None:
    assert identity_of(sub="a" * 255).id == "a" * 255
    assert ClaimMapping().identity({"sub": "a" * 256}) is None


@pytest.mark.parametrize("kind", [None, "", 5, ["service"]])
def test_the_type_is_user_unless_a_claim_says_otherwise(kind: Any) -> None:
    assert identity_of().type == "user"
    assert identity_of(type=kind).type == "user"
    assert identity_of(type="service").type == "service"


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["admin", "operator"], ("admin", "operator")),
        ("admin operator", ("admin", "operator")),
        ("admin,operator, auditor", ("admin", "operator", "auditor")),
        ("admin", ("admin",)),
        (["admin operator"], ("admin operator",)),
        (["admin", 5, None, ["root"], {"root": 1}], ("admin",)),
        ("", ()),
        ([], ()),
        (None, ()),
        (5, ()),
        (True, ()),
        ({"admin": True}, ()),
    ],
    ids=str,
)
def test_roles_are_a_list_or_a_delimited_string(roles: Any, expected: tuple[str, ...]) -> None:
    assert identity_of(roles=roles).roles == expected


@pytest.mark.parametrize("path", ["realm_access.roles", "a.b.c.roles", "https://x.org/roles"])
def test_a_path_selects_a_nested_claim(path: str) -> None:
    *parents, name = path.split(".")
    claims: Any = {name: ["admin"]}
    for parent in reversed(parents):
        claims = {parent: claims}
    assert identity_of(ClaimMapping(roles=path), **claims).roles == ("admin",)


def test_a_claim_may_have_dots_in_its_name() -> None:
    mapping = ClaimMapping(roles="realm_access.roles")
    nested = {"realm_access": {"roles": ["nested"]}}
    assert identity_of(mapping, **nested).roles == ("nested",)
    assert identity_of(mapping, **nested, **{"realm_access.roles": ["named"]}).roles == ("named",)


@pytest.mark.parametrize("parent", [None, 5, "roles", ["roles"], [{"roles": ["x"]}]])
def test_a_path_that_leads_nowhere_selects_nothing(parent: Any) -> None:
    mapping = ClaimMapping(roles="realm_access.roles")
    assert identity_of(mapping, realm_access=parent).roles == ()


def test_every_claim_about_the_bearer_is_an_attribute() -> None:
    technical = {"aud": "a", "exp": 1, "iat": 1, "nbf": 1, "jti": "1"}
    personal = {"iss": ISSUER, "email": "ada@example.com", "name": "Ada", "org": {"team": "math"}}
    assert identity_of(**technical, **personal).attrs == {"sub": SUBJECT, **personal}


def test_attributes_can_be_selected() -> None:
    mapping = ClaimMapping(attrs={"team": "org.team", "mail": "email", "none": "none"})
    attrs = identity_of(mapping, org={"team": "math"}, email="ada@example.com", name="Ada").attrs
    assert attrs == {"team": "math", "mail": "ada@example.com"}


@pytest.mark.parametrize("attrs", [None, {}, {"team": "team"}])
def test_the_issuer_is_always_an_attribute(attrs: Any) -> None:
    assert identity_of(ClaimMapping(attrs=attrs), iss=ISSUER).attrs["iss"] == ISSUER


def test_the_id_can_come_from_another_claim() -> None:
    mapping = ClaimMapping(id="user.id")
    assert identity_of(mapping, user={"id": "ada"}).id == "ada"
    assert mapping.identity({"sub": SUBJECT}) is None


def test_later_changes_to_claims_do_not_change_the_identity() -> None:
    claims = {"sub": SUBJECT, "email": "ada@example.com"}
    identity = ClaimMapping().identity(claims)
    claims["email"] = "eve@example.com"
    assert identity
    assert identity.attrs["email"] == "ada@example.com"
