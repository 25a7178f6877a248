"""TLS of the HTTP front: the certificate and its key, read anew when their files change.

A new pair is read into a context of its own and takes over as a whole, for connections from then on, once both files
fit. A pair that cannot be read changes nothing: the former one stays, and the log names the file.
"""

import asyncio
import os
import ssl
from pathlib import Path

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.settings import HttpTlsSettings

log = get_logger("mcpbridge.http")

_LOOK_EVERY = 2.0
"""Seconds between two looks at the files."""
_LARGEST = 1 << 20


class Certificate:
    """What the front shows to its clients."""

    def __init__(self, settings: HttpTlsSettings) -> None:
        """Read it.

        Raises:
            ConfigError: it cannot be read; names the file.
        """
        self._settings = settings
        self._seen = self._state()
        self.context = self._current = self._read()
        """For the listening socket: each connection gets the pair that is current then."""
        self.context.sni_callback = self._choose

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.cert}>"

    async def watch(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Read the pair anew, if a file has changed."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._current = self._read()
        except ConfigError as error:
            log.error("the certificate was not read anew; the former one stays", reason=str(error))
        else:
            log.info("the certificate was read anew", cert=self._settings.cert)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current

    def _state(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in dict.fromkeys((self._settings.cert, self._settings.key)):
            try:
                stat = os.stat(path or "")  # noqa: PTH116 - may be empty
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)

    def _read(self) -> ssl.SSLContext:
        cert = self._settings.cert or ""
        key = self._settings.key or cert
        _check(cert, b"CERTIFICATE", "http.tls.cert", "a certificate")
        _check(key, b"PRIVATE KEY", "http.tls.key", "a private key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A function: without a password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(cert, key, password=lambda: self._settings.key_password or "")
        except ssl.SSLError as error:
            hint = "Is the key the one that the certificate was issued for, and `http.tls.key_password` its password?"
            what = f"the certificate {cert} and the key {key} do not go together ({error.reason or 'unreadable'})"
            raise ConfigError(what, key="http.tls", hint=hint) from None
        return context


def _check(path: str, holds: bytes, key: str, what: str) -> None:
    """Refuse a file that cannot be read or holds something else, by its name."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key=key) from error
    if b"-----BEGIN " not in text or holds not in text:
        raise ConfigError(f"{path} holds no {what.removeprefix('a ')}", key=key, hint=f"Expected {what} in PEM format.")
