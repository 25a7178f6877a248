"""How a remote server is reached: which certificates TLS trusts and shows, and which proxy is used.

The only I/O is reading certificates.
"""

import os
import ssl
from collections.abc import Callable
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx2
from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.protocol.http.bearer_auth import Authorizer

T = TypeVar("T")

_LIKE = {"ws": "http", "wss": "https"}


class TlsOptions(Struct, frozen=True):
    """What TLS trusts, and what it shows of us. Paths are of PEM files."""

    ca: str = ""
    """Certificates (a file, or a directory of them) to trust instead of the system's."""
    cert: str = ""
    """Our certificate, with its chain."""
    key: str = ""
    """Its private key; empty when it is in the file of the certificate."""
    key_password: str = ""
    verify: bool = True
    """False: whatever certificate the server shows is good."""

    def ssl_context(self) -> ssl.SSLContext:
        """A context for connections of HTTP/1.1.

        Raises:
            ConfigError: a file cannot be used; names the option.
        """
        if self == _DEFAULT:
            return default_ssl_context()
        context = self._trusting()
        if self.cert:
            self._show_certificate(context)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def elsewhere(self) -> ssl.SSLContext:
        """A context for hosts that the server names: what people said of the server does not hold for them.

        They see no certificate of ours and must show a good one; those of `ca` are trusted beside the system's.

        Raises:
            ConfigError: as `ssl_context`.
        """
        if not self.ca:
            return default_ssl_context()
        context = httpx2.create_ssl_context()
        self._with_ca(context.load_verify_locations)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _trusting(self) -> ssl.SSLContext:
        if not self.verify:
            return httpx2.create_ssl_context(verify=False)
        if not self.ca:
            return httpx2.create_ssl_context()
        return self._with_ca(ssl.create_default_context)

    def _with_ca(self, load: Callable[..., T]) -> T:
        try:
            return load(**{"capath" if Path(self.ca).is_dir() else "cafile": self.ca})
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(f"no certificates can be read from {self.ca}: {_why(error)}", key="tls.ca") from error

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        for option, path in (("tls.cert", self.cert), ("tls.key", self.key)):
            if path and not os.access(path, os.R_OK):
                what = "cannot be read" if Path(path).exists() else "no such file"
                raise ConfigError(f"{path}: {what}", key=option)
        try:
            context.load_cert_chain(self.cert, self.key or None, password=self.key_password)
        except OSError as error:
            raise ConfigError(
                f"the certificate cannot be used: {_why(error)}",
                key="tls.cert",
                hint="`tls.cert` is the certificate, `tls.key` its private key, `tls.key_password` what opens that.",
            ) from error


_DEFAULT = TlsOptions()


@cache
def default_ssl_context() -> ssl.SSLContext:
    """The context without options. One for all: loading the trusted certificates takes tens of milliseconds."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Network(Struct, frozen=True):
    """The way to one server."""

    tls: TlsOptions = _DEFAULT
    proxy: str = ""
    """The proxy to use for every address; empty: what the environment says."""
    authorizer: Authorizer | None = None
    """Who has the token for the server; None: it wants none, or a configured header has it."""

    def proxy_for(self, url: httpx2.URL) -> str:
        """The URL of the proxy between us and this address; empty when there is none.

        Without a proxy of our own that of the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, …), which is never
        used for this machine itself.
        """
        if self.proxy:
            return self.proxy
        if url.host == "localhost" or _is_loopback(url.host):
            return ""
        proxies = getproxies()
        proxy = proxies.get(url.scheme) or proxies.get(_LIKE.get(url.scheme, "")) or proxies.get("all") or ""
        if not proxy or proxy_bypass(url.host):
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return os.strerror(error.errno).lower() if error.errno else str(error)
