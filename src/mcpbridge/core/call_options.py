"""The options of one tool, every setting resolved: how its calls and its large results are treated.

The pipeline of the tool is compiled from them. `core/settings_precedence.py` makes them of the levels of settings.
"""

from typing import Literal

from msgspec import Struct

from mcpbridge.base.units import Rate
from mcpbridge.core.call_settings import Permission, RetrySettings, Risk
from mcpbridge.core.result_settings import BUDGET, ITEMS, MEDIA_LIMIT, THRESHOLD, HiddenCharacters, Strategy
from mcpbridge.protocol.deadlines import Timeouts


class ResultOptions(Struct, frozen=True):
    """How results of one tool are treated: every setting, resolved."""

    strategy: Strategy = "preview"
    budget: int = BUDGET
    threshold: int = THRESHOLD
    items: int = ITEMS
    stores: bool = True
    transforms: bool = True
    media_limit: int = MEDIA_LIMIT
    image_side: int = 0
    hidden_characters: HiddenCharacters = "keep"


Effect = Literal["read", "write", "unknown"]


class Hints(Struct, frozen=True):
    """What a tool says of itself (spec, tools, annotations); None where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


NO_HINTS = Hints()
NO_RETRY = RetrySettings(tries=1)
DEFAULT_RESULTS = ResultOptions()


class CallOptions(Struct, frozen=True):
    """How the calls of one tool are treated: every setting, resolved."""

    permission: Permission = "allow"
    risk: Risk = "medium"
    effect: Effect = "unknown"
    """What is known of it: it only reads, it changes something, or neither is known. That it only reads is said by the
    configuration or by a trusted server; a name alone proves nothing."""
    seems_read: bool = False
    """Its name sounds like reading, and nothing speaks against that: enough not to forget what is cached, no more."""
    is_destructive: bool = False
    is_idempotent: bool = False
    """Reading counts."""
    arguments: Literal["coerce", "check", "pass"] = "coerce"
    inject_defaults: bool = True
    timeouts: Timeouts | None = None
    """Its own; None: those of its server."""
    late: Literal["keep", "cancel"] = "keep"
    retry: RetrySettings = NO_RETRY
    cache: float = 0.0
    is_cache_shared: bool = False
    is_serial: bool = False
    """One call at a time for each server and client."""
    max_concurrent: int = 0
    """Calls of this tool at a time; 0: no limit of its own."""
    rate_limit: Rate | None = None
    """How often this tool may be called, by all clients together."""
    server_rate_limit: Rate | None = None
    """The same, of all tools of its server together."""
    log_content: bool | None = None
    """Whether the call log keeps arguments and results; None: as it does by default."""
    redact: tuple[str, ...] = ()
    """What of results is replaced by placeholders: `secrets`, `pii`."""
    redact_arguments: tuple[str, ...] = ()
    """The same, of arguments."""
    results: ResultOptions = DEFAULT_RESULTS
    """What becomes of large results."""
