"""What browsers and clients send to the authorization server, read as OAuth says (RFC 6749, 2.3.1 and 3.1)."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from mcpbridge.app.sign_in.errors import OAuthRefused


def single_values(parameters: Mapping[str, Sequence[str]], repeated: Sequence[str] = ()) -> dict[str, str]:
    """The value of each parameter; one that comes twice is refused (RFC 6749, 3.1)."""
    for name, values in parameters.items():
        if len(values) > 1 and name not in repeated:
            raise OAuthRefused("invalid_request", "a parameter comes twice")
    return {name: values[0] for name, values in parameters.items() if values and values[0]}


def basic_credentials(authorization: str) -> tuple[str, str]:
    """Id and secret of a client (RFC 6749, 2.3.1)."""
    scheme, _, encoded = authorization.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        id_, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError
    except (ValueError, binascii.Error):
        raise OAuthRefused("invalid_client", "the Authorization header is not understood", 401) from None
    return unquote(id_), unquote(secret)
