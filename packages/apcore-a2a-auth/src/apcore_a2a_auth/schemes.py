"""Security schemes for the Agent Card (A2A 1.0 §4.5, FR-AUT-003), as types of the SDK.

Authenticators return them by name from `security_schemes()`.
"""

from collections.abc import Mapping

from a2a import types as a2a


def bearer() -> a2a.SecurityScheme:
    """Return the scheme for tokens in `Authorization: Bearer …` (RFC 6750).

    Example:
        ```python
        from apcore_a2a_auth import bearer

        print(bearer().http_auth_security_scheme.scheme)
        #> bearer
        ```
    """
    scheme = a2a.HTTPAuthSecurityScheme(scheme="bearer")
    return a2a.SecurityScheme(http_auth_security_scheme=scheme)


def api_key(header: str = "X-API-Key") -> a2a.SecurityScheme:
    """Return the scheme for API keys in a header.

    Example:
        ```python
        from apcore_a2a_auth import api_key

        print(api_key().api_key_security_scheme.name)
        #> X-API-Key
        ```
    """
    scheme = a2a.APIKeySecurityScheme(location="header", name=header)
    return a2a.SecurityScheme(api_key_security_scheme=scheme)


def open_id_connect(issuer: str) -> a2a.SecurityScheme:
    """Return the scheme for an OpenID provider with a discovery document (OIDC Discovery §4).

    Example:
        ```python
        from apcore_a2a_auth import open_id_connect

        scheme = open_id_connect("https://idp.example.com").open_id_connect_security_scheme
        print(scheme.open_id_connect_url)
        #> https://idp.example.com/.well-known/openid-configuration
        ```
    """
    scheme = a2a.OpenIdConnectSecurityScheme(open_id_connect_url=discovery_url(issuer))
    return a2a.SecurityScheme(open_id_connect_security_scheme=scheme)


def oauth2(
    token_url: str, scopes: Mapping[str, str] | None = None, *, authorization_url: str = ""
) -> a2a.SecurityScheme:
    """Return the scheme for OAuth 2.0: client credentials or authorization code (RFC 6749).

    Args:
        token_url: URL of the token endpoint.
        scopes: The scopes that clients may request, with their descriptions.
        authorization_url: URL of the authorization endpoint; selects the authorization code flow.

    Example:
        ```python
        from apcore_a2a_auth import oauth2

        scheme = oauth2("https://idp.example.com/token", {"agent": "Call the agent"})
        print([*scheme.oauth2_security_scheme.flows.client_credentials.scopes])
        #> ['agent']
        ```
    """
    if authorization_url:
        code_flow = a2a.AuthorizationCodeOAuthFlow(
            authorization_url=authorization_url, token_url=token_url, scopes=scopes or {}
        )
        flows = a2a.OAuthFlows(authorization_code=code_flow)
    else:
        credentials_flow = a2a.ClientCredentialsOAuthFlow(token_url=token_url, scopes=scopes or {})
        flows = a2a.OAuthFlows(client_credentials=credentials_flow)
    return a2a.SecurityScheme(oauth2_security_scheme=a2a.OAuth2SecurityScheme(flows=flows))


def discovery_url(issuer: str) -> str:
    """Return the URL of an issuer's discovery document (OIDC Discovery §4.1)."""
    return issuer.rstrip("/") + "/.well-known/openid-configuration"
