"""A home directory with the files of all clients in it, as in `app/client_config/fixtures/`, on a Linux machine."""

from pathlib import Path

from mcpbridge.app.client_config.clients import find_client, places
from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.app.client_config.discover.discovered_servers import Found, FoundServer

__all__ = ["FIXTURES", "SECRETS", "fill", "find_here", "found_by_name"]

FIXTURES = Path(__file__).parents[1] / "app" / "client_config" / "fixtures"
"""Files named CLIENT.SCOPE.FORMAT. In them `/home/ada` is the home, and `/home/ada/shop` the project."""

SECRETS = (
    "ghp_FAKEfakeFAKEfakeFAKEfake000000000001",
    "sk_test_FAKEfakeFAKEfake00000001",
    "hunter2hunter2",
    "ctx7sk-FAKE0000-fake-0000-FAKE-000000000001",
    "ctx7sk-FAKE0000-fake-0000-FAKE-000000000002",
    "FAKE0000fake1111FAKE2222fake3333",
    "FAKEfake0123456789fakeFAKE",
    "hf_FAKEfakeFAKEfakeFAKEfake",
    "GOCSPX-FAKEfakeFAKEfake0001",
)
"""All secrets in the fixtures."""


def fill(home: Path, *only: str) -> Path:
    """Put the files of the clients into a home, of all or of these; returns the project in it."""
    project = home / "shop"
    project.mkdir(parents=True, exist_ok=True)
    for fixture in sorted(FIXTURES.iterdir()):
        client, scope, suffix = fixture.name.split(".")
        if only and client not in only:
            continue
        path = next(
            place.path
            for place in places(find_client(client), {}, "linux", home, project)
            if place.file.scope == scope and place.path.suffix == f".{suffix}" and "*" not in str(place.path)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fixture.read_text("utf-8").replace("/home/ada", str(home)), "utf-8")
    return project


def find_here(home: Path, *only: str) -> Found:
    """What is found in such a home."""
    return find_all({}, home, "linux", fill(home, *only))


def found_by_name(found: Found) -> dict[str, FoundServer]:
    """The servers as `client/name`; of several places of one client the last."""
    return {f"{server.client}/{server.name}": server for server in found.servers}
