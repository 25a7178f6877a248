"""What a configuration may say of a fleet."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcpbridge.config.schema import Settings

FLEET: dict[str, Any] = {
    "store": {"kind": "redis", "url": "redis://localhost"},
    "fleet": {"listen": "127.0.0.1:7946", "key": "0123456789abcdef"},
}


def servers(**memory: Any) -> dict[str, Any]:
    return {"servers": {"memory": {"share": "fleet", **memory}}}


def test_a_server_that_the_fleet_has_once_is_a_program_that_asks_nobody() -> None:
    one = Settings.model_validate({**FLEET, **servers(command="x")}).servers["memory"]
    assert one.is_shared
    assert one.questions == "never"
    with pytest.raises(ValidationError, match=r'`share = "fleet"` goes with `command`'):
        Settings.model_validate({**FLEET, **servers(url="http://localhost")})


def test_there_is_none_without_a_fleet() -> None:
    with pytest.raises(ValidationError, match=r'`servers.memory.share` is "fleet", but there is no `\[fleet\]`'):
        Settings.model_validate(servers(command="x"))
