"""The `console` section: the pages for a browser that show what the bridge does.

It lies here and not in `app/console`, which reads it, because `schema.py` imports nothing above `config`.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class ConsoleSettings(BaseModel):
    """The `console` section: the pages for a browser (`mcpbridge ui`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool = True
    """Whether there is a console. `mcpbridge serve --http` has it at `/console`; the daemon opens a port of this
    machine for it while a page is open."""

    sign_in_lifetime: Seconds = Field(default=12 * 3600, gt=0)
    """Seconds for which a browser that signed in stays signed in."""
