"""HTTP clients of the tests share the certificates that they trust, where they name none.

To load those of the system takes each client tens of milliseconds, more than most of what it is made for. A context
that a client names itself is taken as it is, so those of the bridge are its own.
"""

import os
import ssl
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import httpx2

__all__ = ["share_certificates"]


def share_certificates() -> None:
    """From now on, in this process."""
    for kind in (httpx2.Client, httpx2.AsyncClient):
        kind.__init__ = _sharing(kind.__init__)  # type: ignore[method-assign]


def _sharing(make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def init(client: object, *args: Any, verify: Any = True, trust_env: bool = True, **more: Any) -> None:
        if verify is True:
            named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")) if trust_env else (None, None)
            verify = _context(trust_env, *named)
        make(client, *args, verify=verify, trust_env=trust_env, **more)

    return init


@cache
def _context(trust_env: bool, _file: str | None, _folder: str | None) -> ssl.SSLContext:
    """By what it depends on."""
    return httpx2.create_ssl_context(trust_env=trust_env)
