"""Values of references to secrets are in no output, log or file, whatever servers do with them (issue 22)."""

import json
import sys
from pathlib import Path

import pytest

from mcpbridge.storage.named_secrets import NamedSecrets
from support.harness import Place

LEAKY = """
import json, os, sys
token = os.environ["TOKEN"]
print("starting with", token, file=sys.stderr, flush=True)
if "crash" in sys.argv:
    sys.exit(f"cannot sign in as {token}")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "leaky", "version": "1"}
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "leak", "inputSchema": {"type": "object"}}]}
    else:
        answer["error"] = {"code": -32000, "message": f"refused for {token}", "data": {"token": token}}
    print(json.dumps(answer), flush=True)
"""
KINDS = {
    "cmd": "cmd:cat canary-of-cmd",
    "secret": "secret:leaky",
    "file": "file:canary-of-file",
    "keyring": "keyring:leaky",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_canary_is_found_nowhere(place: Place, kind: str) -> None:
    canary = f"canary/{kind}+5f2d9c71e0"
    (place.folder / "leaky.py").write_text(LEAKY)
    for name in ("cmd", "file"):
        (place.folder / f"canary-of-{name}").write_text(f"{canary}\n")
        (place.folder / f"canary-of-{name}").chmod(0o600)
    NamedSecrets({"XDG_DATA_HOME": str(place.folder / ".local/share")}).set("leaky", canary)
    place.env["MCPBRIDGE_STANDALONE"] = "0"
    env = {"TOKEN": f"${{{KINDS[kind]}}}"}
    command = {"command": sys.executable, "args": [str(place.folder / "leaky.py")], "env": env}
    crash = {**command, "args": [*command["args"], "crash"]}
    config = place.config({"leaky": command, "crash": crash}, calls={"log_content": True}, daemon={"idle_exit": 60})
    place._running += 1  # commands that are run meanwhile leave the daemon alone
    shown = ""
    try:
        for words in (
            ["up"],
            ["list", "--json"],
            ["call", "leaky/leak", "--json"],
            ["call", "leaky/leak", "{}"],
            ["check", "--json"],
            ["doctor", "--json"],
            ["status", "--json"],
            ["status"],
            ["log", "--json"],
            ["stats", "--json"],
            ["reload", "--json"],
            ["logs"],
            ["secret", "list", "--json"],
            ["trust", "servers.toml", "--json"],
            ["lock", "--config", "servers.toml"],
        ):
            named = words if words[0] in ("secret", "trust", "lock", "logs") else [*words, "--config", str(config)]
            finished = await place.run(*named)
            shown += f"\n$ {words}\n{finished.out}{finished.err}"
    finally:
        await place.run("down", "--all")
        place._running -= 1
        place.kill_survivors()
    assert "refused for" in shown, "the server did say something"
    assert "crash" in shown
    for form in (canary, json.dumps(canary)[1:-1], canary.replace("/", "%2F")):
        assert form not in shown
    own = {place.folder / f"canary-of-{name}" for name in ("cmd", "file")}
    places = [path for folder in (place.folder, place._runtime) for path in Path(folder).rglob("*")]
    files = [path for path in places if path.is_file() and path not in own]
    assert len(files) > 3
    assert [path for path in files if canary.encode() in path.read_bytes()] == []
