"""The `tools.<name>` sections with `agent`: another agent as a tool, a remote one over A2A or a Python callable."""

import re
from functools import cached_property
from typing import Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from mcpbridge.tools.http.request import places_in, url_mistake
from mcpbridge.tools.http.settings import HttpReach
from mcpbridge.tools.python.import_object import OBJECT_NAME
from mcpbridge.tools.settings import BackendSettings

_REMOTE_ONLY = ("skills", "card", "url", "allow_origins")


class AgentSettings(HttpReach, BaseModel):
    """One agent. A remote agent is found by its agent card; every request to it carries `headers` and `auth`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    agent: str
    """The agent. `https://host` or `https://host/path`: its card is below this address. An address that ends with
    `.json`: the card itself. `pkg.mod:name`: a Python callable of an installed package, or of a module beside the
    configuration file."""

    skills: bool = False
    """`true`: one tool for each skill of its card. `false`: one tool with the name of this table."""

    card: str | None = None
    """The path of its card on that host, or the address of the card. Default: `/.well-known/agent-card.json`, then the
    older `/.well-known/agent.json`."""

    url: str | None = None
    """The address for messages, instead of the one on the card."""

    allow_origins: list[str] = []
    """Other origins (`https://host:port`) that its card may name. They receive `headers` and `auth` as well."""

    stream: bool = True
    """Whether the bridge follows the agent's work as a stream, if the agent can stream. `false`: it polls."""

    @field_validator("agent")
    @classmethod
    def _is_agent(cls, value: str) -> str:
        if re.match(OBJECT_NAME, value):
            return value
        if "://" not in value:
            raise ValueError("expected an address such as https://agents.example.com/travel, or pkg.mod:name")
        return _address(value)

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        return value and _address(value)

    @field_validator("card")
    @classmethod
    def _is_place(cls, value: str | None) -> str | None:
        if value is None or (value.startswith("/") and not value.startswith("//")):
            return value
        return _address(value)

    @field_validator("allow_origins")
    @classmethod
    def _are_origins(cls, value: list[str]) -> list[str]:
        for origin in value:
            if re.fullmatch(r"https?://[^/?#@\s]+/?", origin) is None:
                raise ValueError(f"`{origin}` is no origin: write https://host or https://host:port")
        return [origin.rstrip("/").lower() for origin in value]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.is_remote:
            if self.input_schema is not None or self.output_schema is not None:
                raise ValueError("a remote agent takes a message: `input_schema` and `output_schema` are not for it")
            return self
        own = set(HttpReach.model_fields) - set(BackendSettings.model_fields)
        stray = next((key for key in (*_REMOTE_ONLY, *sorted(own), "stream") if key in self.model_fields_set), None)
        if stray is not None:
            raise ValueError(f"`{stray}` is for remote agents, and `agent` names a Python callable")
        return self

    @cached_property
    def is_remote(self) -> bool:
        """It is reached over A2A."""
        return re.match(OBJECT_NAME, self.agent) is None


def _address(value: str) -> str:
    if mistake := url_mistake(value) or ("nobody fills placeholders here" if places_in(value) else ""):
        raise ValueError(mistake)
    return value
