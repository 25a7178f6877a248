"""Fetches the values of `${cmd:…}`, `${keyring:…}` and `${secret:…}`, each once, and again when they are old.

All calls block, and belong into a thread where an event loop runs. A value that cannot be fetched costs the server that
needs it, and is tried again. Values are in memory alone.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from mcpbridge.base.masking.known_values import without_secrets
from mcpbridge.config.secrets.settings import SecretsSettings
from mcpbridge.config.variables import NotThereError, Reference

TRY_AGAIN = 10.0
"""Seconds for which a failure counts; then the next who asks has it tried again."""
FAILED_AGAIN = 60.0
"""Seconds after which a running bridge tries a failure again by itself."""
_AT_A_TIME = 8
"""Commands that run at a time."""


class _Fetched(Struct, frozen=True):
    value: str
    problem: str
    """Why there is no value; empty: there is one."""
    at: float


class Providers:
    """The values that one configuration refers to."""

    def __init__(self, environ: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`environ`: of the commands, and where the store of `mcpbridge secret` is."""
        self.settings = SecretsSettings.model_construct()
        """As the configuration has them; reading it sets them."""
        self._environ, self._clock = environ, clock
        self._fetched: dict[tuple[Reference, Path], _Fetched] = {}
        self.problems: tuple[str, ...] = ()
        """What could not be fetched again, and why; the values stay as they were."""

    def prepare(self, references: Collection[Reference], directory: Path) -> None:
        """Fetch what is not there yet, side by side, and forget what is not among these.

        What `mcpbridge secret` stored is read each time: that costs little, and no value of it is old.

        `directory`: where commands run, and their relative paths start.
        """
        wanted = {(reference, directory) for reference in references}
        self._fetched = {key: one for key, one in self._fetched.items() if key in wanted}
        self._fetch([key for key in wanted if _is_own(key[0]) or not self._counts(key)])

    def value(self, reference: Reference, directory: Path) -> str:
        """The value, fetched if it is not there.

        Raises:
            NotThereError: it cannot be had; says why.
        """
        key = reference, directory
        if not self._counts(key):
            self._fetch([key])
        found = self._fetched[key]
        if found.problem:
            raise NotThereError(found.problem)
        return found.value

    @property
    def is_due(self) -> bool:
        """Some values are old enough to be fetched again."""
        return bool(self._old())

    @property
    def has_any(self) -> bool:
        """Something was fetched."""
        return bool(self._fetched)

    def refresh(self, *, everything: bool = False) -> bool:
        """Fetch again what is old, or everything. Says whether a value came or changed.

        What cannot be fetched now keeps the value that it had: a vault that is locked does not stop what runs.
        """
        keys = list(self._fetched) if everything else self._old()
        before, problems = {key: self._fetched[key] for key in keys}, list[str]()
        self._fetch(keys)
        for key, old in before.items():
            if (problem := self._fetched[key].problem) and not old.problem:
                problems.append(f"{without_secrets(f'${{{key[0][0]}:{key[0][1]}}}')}: {problem}")
                self._fetched[key] = _Fetched(old.value, "", self._clock())
        self.problems = tuple(problems)
        return any(self._fetched[key].value != old.value for key, old in before.items())

    def _old(self) -> list[tuple[Reference, Path]]:
        now, refresh = self._clock(), self.settings.refresh
        if not refresh:
            return []
        return [
            key
            for key, one in self._fetched.items()
            if now - one.at >= (min(refresh, 60.0) if one.problem else refresh)
        ]

    def _counts(self, key: tuple[Reference, Path]) -> bool:
        found = self._fetched.get(key)
        return found is not None and (not found.problem or self._clock() - found.at < TRY_AGAIN)

    def _fetch(self, keys: Collection[tuple[Reference, Path]]) -> None:
        if len(keys) < 2:
            for key in keys:
                self._fetched[key] = self._one(key)
            return
        with ThreadPoolExecutor(min(len(keys), _AT_A_TIME)) as threads:
            self._fetched |= dict(zip(keys, threads.map(self._one, keys), strict=True))

    def _one(self, key: tuple[Reference, Path]) -> _Fetched:
        try:
            value = self._look_up(*key)
        except NotThereError as error:
            return _Fetched("", str(error), self._clock())
        return _Fetched(value, "", self._clock())

    def _look_up(self, reference: Reference, directory: Path) -> str:
        kind, rest = reference
        if kind == "cmd":
            from mcpbridge.config.secrets.commands import output_of

            return output_of(rest, directory, self._environ, self.settings.timeout)
        if _is_own(reference):
            return self._named(rest)
        from mcpbridge.config.secrets.os_keyring import keyring_entry

        service, _, name = rest.rpartition("/")
        return keyring_entry(service, name, self.settings.timeout)

    def _named(self, name: str) -> str:
        from mcpbridge.base.errors import ConfigError
        from mcpbridge.storage.named_secrets import NamedSecrets

        try:
            found = NamedSecrets(self._environ).get(name)
        except ConfigError as error:
            raise NotThereError(str(error)) from None
        if found is None:
            raise NotThereError(f"there is no secret of this name: mcpbridge secret set {name}")
        return found


def _is_own(reference: Reference) -> bool:
    """It means what `mcpbridge secret` stored: `${secret:NAME}`, or `${keyring:NAME}` without a service."""
    kind, rest = reference
    return kind == "secret" or (kind == "keyring" and "/" not in rest)
