"""Signatures of notifications follow Standard Webhooks for any content."""

import pytest
from apcore_a2a_server.push.signing import Signer
from standardwebhooks import Webhook

SECRET = "whsec_" + "c2VjcmV0" * 4


@pytest.mark.parametrize("text", ["{}", "Grüße", "\u4f60\u597d", "\U0001f600"])
def test_a_receiver_accepts_the_signature_of_any_text(text: str) -> None:
    body = f'{{"text":"{text}"}}'.encode()
    headers = dict(Signer([SECRET]).headers("n1", body))

    assert Webhook(SECRET).verify(body, headers)
