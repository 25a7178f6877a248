"""The `log` section of the configuration: which log lines are written, and in which format.

Of all sections: pydantic makes the validator of a model when it is first used (`defer_build`), and a model that is only
a part of others never needs one. So a default is `X.model_construct()`, which is `X()` unchecked. At the start that
saves the making of about 60 validators.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class LogSettings(BaseModel):
    """The `log` section. Logs go to standard error: on stdio, standard output belongs to the protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """The least severe level to write."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object a line; `console`: for people; `auto`: `console` on a terminal, else `json`."""
