"""What the HTTP clients of the tests share, and what not: see `support/shared_certificates.py`."""

import ssl
from typing import Any

import httpx2


def contexts_of(*clients: Any) -> int:
    return len({id(client._transport._pool._ssl_context) for client in clients})


def test_clients_that_name_no_certificates_share_them_and_check_them() -> None:
    with httpx2.Client(trust_env=False) as one, httpx2.Client(trust_env=False) as other:
        assert contexts_of(one, other) == 1
        context: ssl.SSLContext = one._transport._pool._ssl_context  # type: ignore[attr-defined]
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        with httpx2.Client(trust_env=False, verify=httpx2.create_ssl_context()) as own:
            assert contexts_of(one, own) == 2
