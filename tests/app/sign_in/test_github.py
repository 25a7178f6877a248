"""GitHub, which speaks OAuth and no OpenID Connect: a local server answers as its API does."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.identity_provider import IdentityProvider, challenge_of
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from support.identity_providers import answer_in

USER = {"id": 583231, "login": "octocat"}
EMAILS = [
    {"email": "old@example.com", "primary": False, "verified": True},
    {"email": "octo@example.com", "primary": True, "verified": True},
]


class GitHub:
    """What it answers; change it at will."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {
            "/api/v3/user": USER,
            "/api/v3/user/emails": EMAILS,
            "/api/v3/user/orgs": [{"login": "acme"}],
            "/api/v3/user/teams": [{"slug": "core", "organization": {"login": "acme"}}],
        }
        self.token: dict[str, Any] = {"access_token": "gho_1", "token_type": "bearer", "scope": "read:user"}
        self.forms: list[dict[str, list[str]]] = []
        self.url = ""


@pytest.fixture
def github() -> Iterator[GitHub]:
    here = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers["authorization"] == f"Bearer {here.token.get('access_token')}"
            self.reply(200 if is_known else 401, here.answers.get(self.path.partition("?")[0]) if is_known else {})

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            here.forms.append(form)
            self.reply(200, here.token)

        def reply(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - as it is called there

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield here
    server.shutdown()
    server.server_close()
    thread.join()


def provider(github: GitHub, **more: Any) -> IdentityProvider:
    settings = SignInSettings(provider="github", issuer=github.url, client_id="Iv1.abc", client_secret="s3", **more)
    return IdentityProvider(settings, "https://bridge.example.com/oauth/callback")


async def test_a_person_is_known_by_number_and_their_organizations_and_teams_are_groups(github: GitHub) -> None:
    asked = provider(github)
    page = await asked.page("st", "nonce", "v" * 50)
    assert page.startswith(f"{github.url}/login/oauth/authorize?")
    parameters = answer_in(page)
    assert parameters["code_challenge"] == challenge_of("v" * 50)
    assert parameters["scope"] == "read:user user:email read:org"
    assert "nonce" not in parameters
    signed_in = await asked.finish("code-1", "nonce", "v" * 50, None)
    form = github.forms[0]
    assert (form["code"], form["client_id"], form["client_secret"]) == (["code-1"], ["Iv1.abc"], ["s3"])
    person = signed_in.person
    assert (person.issuer, person.subject, person.name) == (github.url, "583231", "octo@example.com")
    assert person.claims["groups"] == ["acme", "acme/core"]
    assert person.claims["email_verified"] is True


async def test_a_refusal_that_comes_with_status_200_is_one(github: GitHub) -> None:
    github.token = {"error": "bad_verification_code", "error_description": "The code passed is incorrect."}
    with pytest.raises(ProviderRefused, match="bad_verification_code"):
        await provider(github).finish("code-1", "nonce", "v" * 50, None)


async def test_an_address_that_is_not_verified_counts_for_nothing(github: GitHub) -> None:
    github.answers["/api/v3/user/emails"] = [{"email": "boss@example.com", "primary": True, "verified": False}]
    person = (await provider(github).finish("c", "n", "v" * 50, None)).person
    assert "email" not in person.claims
    assert person.name == "octocat"


@pytest.mark.parametrize("user", [{}, [], None, {"id": "583231", "login": "x"}, {"id": True, "login": "x"}, {"id": 1}])
async def test_an_answer_that_names_nobody_lets_nobody_in(github: GitHub, user: object) -> None:
    github.answers["/api/v3/user"] = user
    with pytest.raises(ProviderRefused):
        await provider(github).finish("c", "n", "v" * 50, None)


async def test_a_renewal_asks_again_and_one_that_was_withdrawn_ends(github: GitHub) -> None:
    asked = provider(github)
    signed_in = await asked.finish("c", "n", "v" * 50, None)
    github.answers["/api/v3/user/orgs"] = []
    renewed = await asked.renew(signed_in.person, signed_in.tokens)
    assert renewed.person.claims["groups"] == ["acme/core"]
    github.answers["/api/v3/user"] = {"id": 1, "login": "somebody"}
    with pytest.raises(ProviderRefused):
        await asked.renew(signed_in.person, signed_in.tokens)
    github.token = {"access_token": "another"}
    with pytest.raises(ProviderRefused):
        await asked.renew(signed_in.person, signed_in.tokens)
