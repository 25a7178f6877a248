"""Which configuration file a command means: the one that it reads, and the one that it writes.

Commands that start or connect to anything read it with `load_trusted`. `click` is not loaded here: `serve` asks, too.
What reads a configuration knows all settings, so it is loaded by those commands alone that need it.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.base.config_file import FILE_NAME, find_config, is_found_in_working_directory
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor

if TYPE_CHECKING:
    from mcpbridge.config.load import Loaded
    from mcpbridge.config.trust.decisions import TrustStore


def configuration_to_write(named: str | None, environ: Mapping[str, str]) -> Path:
    """The file that gets servers: the one that is named, the one that is in use, else the user's."""
    if named := named or environ.get("MCPBRIDGE_CONFIG"):
        return absolute(Path(named).expanduser())
    found = find_config(None, environ)
    return absolute(Path(found)) if found is not None else config_directory(environ) / FILE_NAME


def absolute(path: Path) -> Path:
    """The path from the root on; a link stays what it is."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links


def config_path(explicit: str | None) -> Path:
    """The configuration that is meant.

    Raises:
        ConfigError: there is none.
    """
    return _find(explicit).resolve()


def _find(explicit: str | None) -> Path:
    found = find_config(explicit, os.environ)
    if found is not None:
        return Path(found)
    from mcpbridge.config.load import find

    return find(explicit, os.environ)  # it says why there is none


def load_trusted(config: str | None, *, fetches: bool = True) -> "Loaded":
    """The configuration that is meant, if it may be used: one that nobody named is asked about at the terminal.

    `fetches`: see `load`.

    Raises:
        NotTrusted: nobody named it, and nobody said yes.
        ConfigError: there is none, or it is wrong.
    """
    from mcpbridge.config.load import load

    return load(config, agree=ask_for_trust, fetches=fetches)


def load_only_to_look(config: str | None) -> "Loaded":
    """The configuration that is meant, for a command that starts and connects to nothing of it.

    Raises:
        ConfigError: there is none, or it is wrong.
    """
    from mcpbridge.config.load import read

    return _with_key_of_store(read(_find(config), os.environ), config)


def ask_for_trust(loaded: "Loaded", store: "TrustStore") -> bool:
    """Show the person at the terminal what a configuration would start, and ask.

    Without a terminal the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from mcpbridge.app.cli.output import visible
    from mcpbridge.config.trust.content import whole_content

    path = str(loaded.settings.source)
    content = whole_content(loaded.judged, loaded.content)
    shown = describe_change(loaded, store, content) or describe_what_runs(loaded)
    print(visible(f"{path}: {store.why_not(path, content)}.\n{shown}"), file=sys.stderr)
    return is_answered_yes("Trust it?")


def is_answered_yes(question: str) -> bool:
    """The person at the terminal says yes. What was typed before the question is no answer."""
    discard_typed_ahead()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def discard_typed_ahead() -> None:
    """Forget what was typed at the terminal so far: it answers nothing that is asked from now on."""
    try:
        import termios
    except ImportError:  # Windows
        return
    with suppress(OSError, ValueError, termios.error):  # no terminal after all
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


_SHOWN_LINES = 40
_SHOWN_CHARACTERS = 1000


def describe_change(loaded: "Loaded", store: "TrustStore", content: Mapping[str, str]) -> str:
    """What changed since a person trusted this configuration last; empty: nobody has, or nothing did. No secrets."""
    from mcpbridge.config.trust.changes import describe_changes
    from mcpbridge.config.trust.content import place_of

    decision = store.find(str(loaded.settings.source))
    if decision is None or not decision.text:
        return ""
    redact = Redactor(loaded.secrets)
    path = place_of(str(loaded.settings.source))
    changes = describe_changes(decision, path, loaded.masked_text, content)
    return "\n".join(f"  {redact(line)}" for line in changes)


def describe_what_runs(loaded: "Loaded") -> str:
    """What a configuration starts, connects to and reads, and which files a yes covers, a line each; no secrets."""
    from mcpbridge.config.trust.description import what_is_covered, what_runs

    lines = [*what_runs(loaded.judged), *what_is_covered(loaded.judged)]
    if read := ", ".join(sorted(f"${{{one}}}" for one in loaded.references | loaded.missing)):
        lines.insert(0, f"reads {read}")
    if len(lines) > _SHOWN_LINES:
        lines[_SHOWN_LINES:] = [f"… and {len(lines) - _SHOWN_LINES} more"]
    redact = Redactor(loaded.secrets)
    return "\n".join(f"  {_shortened(' '.join(redact(line).split()))}" for line in lines) or "  it starts nothing"


def _shortened(line: str) -> str:
    left = len(line) - _SHOWN_CHARACTERS
    return line if left <= 0 else f"{line[:_SHOWN_CHARACTERS]}… ({left} more characters: read the file)"


def load_or_default(config: str | None) -> "Loaded":
    """The file `config`, or the one that other commands find; where there is none, what bridges do unasked.

    Raises:
        ConfigError: there is none of that name, or it is wrong.
    """
    from mcpbridge.config.load import Loaded, read
    from mcpbridge.config.schema import Settings

    try:
        path = _find(config)
    except ConfigError:
        if config or os.environ.get("MCPBRIDGE_CONFIG"):
            raise
        return Loaded(Settings())
    return _with_key_of_store(read(path, os.environ), config)


def _with_key_of_store(loaded: "Loaded", config: str | None) -> "Loaded":
    """The same, with the secrets it refers to if the key of its store is one: what is in there is wanted.

    Raises:
        NotTrusted: nobody named the file or trusts it, so nothing of it is run.
        ConfigError: it is wrong with the secrets in it.
    """
    from mcpbridge.config.load import require_trust, with_secrets
    from mcpbridge.config.secrets.providers import Providers
    from mcpbridge.config.variables import secret_references

    store = loaded.settings.store
    if not any(secret_references([store.key, store.url, store.password, store.tls.key_password])):
        return loaded
    if is_found_in_working_directory(config, os.environ):
        return require_trust(loaded, os.environ)
    return with_secrets(loaded, os.environ, Providers(os.environ))
