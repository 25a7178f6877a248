"""An issuer that is down for hours: known keys count for an hour, then nobody is let in by them (issue 23).

The provider is the certified `oidc-provider`; it and the bridge are processes. The clocks of the bridge's process are
put forward by `support/programs/shifted_bridge.py`, which starts it.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import Struct

import support
from support.ports import free_port
from support.real_sign_in import EVERYBODY, Bridge, Provider, needs_provider, until

pytestmark = needs_provider

MINUTE = 60
PROGRAM = Path(next(iter(support.__path__))) / "programs" / "shifted_bridge.py"


class World(Struct):
    provider: Provider
    bridge: Bridge
    file: Path

    def put_clocks_forward(self, seconds: float) -> None:
        """The bridge's are so much ahead from now on."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds), "utf-8")
        new.replace(self.file)  # whoever reads it meanwhile reads one or the other


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    port, file = free_port(), tmp_path / "ahead"
    file.write_text("0", "utf-8")
    resource = f"http://127.0.0.1:{port}/mcp"
    provider = Provider([resource], ttl=6 * 3600)
    auth = f'{EVERYBODY}[auth]\nresource = "{resource}"\n[auth.issuers.real]\nissuer = "{provider.url}"\n'
    with ExitStack() as stack:
        provider.start()
        stack.callback(provider.kill)
        bridge = Bridge(tmp_path, port, auth, program=[sys.executable, str(PROGRAM), str(file)])
        stack.callback(bridge.end)
        yield World(provider, bridge, file)


def test_keys_that_are_known_count_for_an_hour_and_then_nobody_comes_in_until_the_issuer_is_back(world: World) -> None:
    provider, bridge = world.provider, world.bridge
    tokens = [provider.machine_token(bridge.url) for _ in range(5)]
    assert bridge.ask(tokens[0]).status_code == 200
    provider.kill()
    for place, minutes in enumerate((4, 30, 58), start=1):
        world.put_clocks_forward(minutes * MINUTE)
        assert bridge.ask(tokens[place]).status_code == 200, f"{minutes} min: never seen, and the keys are known"
    world.put_clocks_forward(62 * MINUTE)
    for token in tokens:
        answer = bridge.ask(token)
        assert answer.status_code == 503, "seen before or not: nobody knows whether the keys still count"
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert "www-authenticate" not in answer.headers, "a client that signed in anew would get no further"
        assert token not in answer.text
    assert bridge.ask(None).status_code == 401, "who shows nothing is to sign in, as always"
    provider.start()
    world.put_clocks_forward(63 * MINUTE)
    until(lambda: bridge.ask(tokens[4]).status_code == 200, "the issuer is back, and its keys are read")
    log = bridge.log.read_text("utf-8")
    assert "keys of an issuer cannot be fetched" in log
    assert not [token for token in tokens if token in log]


def test_a_token_ends_though_its_issuer_is_down(world: World) -> None:
    """Known keys make nothing last longer: the token has its own end."""
    provider, bridge = world.provider, world.bridge
    provider.kill()
    provider.options["ttl"] = 10 * MINUTE
    provider.start()
    token = provider.machine_token(bridge.url)
    assert bridge.ask(token).status_code == 200
    provider.kill()
    world.put_clocks_forward(9 * MINUTE)
    assert bridge.ask(token).status_code == 200
    world.put_clocks_forward(20 * MINUTE)
    ended = bridge.ask(token)
    assert ended.status_code == 401
    assert 'error="invalid_token"' in ended.headers["www-authenticate"]
