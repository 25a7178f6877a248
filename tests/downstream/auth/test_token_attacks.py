"""Tokens that must let nobody in, one for each rule: all are answered with 401, and nothing of them is in a log."""

import hashlib
import hmac
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from mcpbridge.downstream.settings import ResourceServerSettings
from support.http_front import modern_body, modern_headers, request, serving
from support.token_issuer import RESOURCE, Issuer, b64, issuing, signed

OTHER_RSA = RSAKey.generate_key(2048, {"kid": "one"})
with warnings.catch_warnings(action="ignore"):
    SMALL_RSA = RSAKey.generate_key(1024, {"kid": "small"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
EC_384 = ECKey.generate_key("P-384", {"kid": "ec-384"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "okp"})
NOW = int(time.time())


def unsigned(alg: Any) -> Callable[[Issuer], str]:
    def token(issuer: Issuer) -> str:
        return signed({"alg": alg, "kid": "one", "typ": "at+jwt"}, issuer.claims(), None, "")

    return token


def with_signature(alg: str) -> Callable[[Issuer], str]:
    """Of a good token, whose header says another algorithm."""

    def token(issuer: Issuer) -> str:
        good = issuer.token()
        head = b64(json.dumps({"alg": alg, "kid": "one", "typ": "at+jwt"}).encode())
        return ".".join([head, *good.split(".")[1:]])

    return token


def hmac_with(secret: Callable[[Issuer], bytes], alg: str = "HS256") -> Callable[[Issuer], str]:
    """A symmetric signature whose secret is the public key."""

    def token(issuer: Issuer) -> str:
        head = json.dumps({"alg": alg, "kid": "one", "typ": "at+jwt"}).encode()
        text = f"{b64(head)}.{b64(json.dumps(issuer.claims()).encode())}"
        digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[alg]
        return f"{text}.{b64(hmac.new(secret(issuer), text.encode(), digest).digest())}"

    return token


def pem(issuer: Issuer) -> bytes:
    return issuer.keys["one"].as_pem(private=False)


def claims(**changes: Any) -> Callable[[Issuer], str]:
    """A token that is good but for these claims."""
    return lambda issuer: issuer.token(**changes)


def header(**changes: Any) -> Callable[[Issuer], str]:
    return lambda issuer: issuer.token(header=changes)


def raw_claims(text: Callable[[Issuer], bytes]) -> Callable[[Issuer], str]:
    def token(issuer: Issuer) -> str:
        return signed({"alg": "RS256", "kid": "one", "typ": "at+jwt"}, text(issuer), issuer.keys["one"], "RS256")

    return token


def by_other_key(**more: Any) -> Callable[[Issuer], str]:
    def token(issuer: Issuer) -> str:
        head = {"alg": "RS256", "kid": "one", "typ": "at+jwt", **more}
        return signed(head, issuer.claims(), OTHER_RSA, "RS256")

    return token


def changed(change: Callable[[str], str]) -> Callable[[Issuer], str]:
    return lambda issuer: change(issuer.token())


def by(key: Any, alg: str, kid: str, *, published: Any = ...) -> Callable[[Issuer], str]:
    """Signed by another of the issuer's keys."""

    def token(issuer: Issuer) -> str:
        issuer.keys[kid] = key
        if published is not ...:
            issuer.published = [issuer.keys["one"].as_dict(private=False), *published]
        return signed({"alg": alg, "kid": kid, "typ": "at+jwt"}, issuer.claims(), key, alg)

    return token


def as_jwt(issuer: Issuer, **more: Any) -> str:
    """What says no more than that it is a JWT."""
    return issuer.token(header={"typ": "JWT"}, **more)


def nested(issuer: Issuer) -> str:
    head = {"alg": "RS256", "kid": "one", "typ": "at+jwt", "cty": "JWT"}
    return signed(head, issuer.token().encode(), issuer.keys["one"], "RS256")


def doubled(name: str, first: str, second: str) -> Callable[[Issuer], str]:
    def text(issuer: Issuer) -> bytes:
        rest = json.dumps(issuer.claims(**{name: ...}))[1:]
        twice = f'"{name}":{first},"{name}":{second}'.replace("ISS", issuer.url)
        return f"{{{twice},{rest}".encode()

    return raw_claims(text)


def flip(text: str, at: int) -> str:
    """Another letter there."""
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def unused_bits(token: str) -> str:
    """The same bytes in another spelling: bits behind the last byte that mean nothing."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    head, body, signature = token.split(".")
    assert len(signature) % 4 == 2
    return f"{head}.{body}.{signature[:-1]}{letters[letters.index(signature[-1]) ^ 1]}"


# ruff: noqa: E501 - a table with one attack a line
ATTACKS: dict[str, Callable[[Issuer], str]] = {
    # Signatures
    **{f"alg {alg!r}": unsigned(alg) for alg in ("none", "None", "NONE", "nOnE", "none ", "", None, 0, [], ["RS256"])},
    **{f"alg {alg!r} with a signature": with_signature(alg) for alg in ("none", "NonE", "RS512", "PS256", "ES256", "rs256")},
    "no alg": header(alg=...),
    "HS256 with the public key as PEM": hmac_with(pem),
    "HS256 with the public key as PEM, stripped": hmac_with(lambda issuer: pem(issuer).strip()),
    "HS512 with the public key as PEM": hmac_with(pem, "HS512"),
    "HS256 with the public key as JWK": hmac_with(lambda issuer: json.dumps(issuer.keys["one"].as_dict(private=False)).encode()),
    "HS256 with nothing": hmac_with(lambda _: b""),
    "HS256 with the issuer": hmac_with(lambda issuer: issuer.url.encode()),
    "another key": by_other_key(),
    "another key, no id": by_other_key(kid=""),
    "another key, in the token": by_other_key(jwk=OTHER_RSA.as_dict(private=False)),
    "another key, by an address": by_other_key(jku="https://evil.example/keys"),
    "another key, by a certificate": by_other_key(x5u="https://evil.example/cert"),
    "another key, with a certificate": by_other_key(x5c=["MIIB"]),
    "a good key, and one in the token": header(jwk=OTHER_RSA.as_dict(private=False)),
    "a good key, and an address": header(jku="https://evil.example/keys"),
    "unknown key id": by_other_key(kid="two"),
    "a key id that is a path": by_other_key(kid="../../../../dev/null"),
    "a key id that is a statement": by_other_key(kid="x' UNION SELECT 'key"),
    "a key id that is no text": header(kid=["one"]),
    "a key id that is an object": header(kid={"a": 1}),
    "a long key id": header(kid="k" * 5000),
    "a key of another type": by(OctKey.import_key("secret secret secret secret secret"), "HS256", "oct"),
    "a symmetric key that is published": by(OctKey.import_key("s" * 32), "HS256", "oct", published=[{"kty": "oct", "kid": "oct", "k": b64(b"s" * 32)}]),
    "a short RSA key": by(SMALL_RSA, "RS256", "small"),
    "a key for encryption": by(EC, "ES256", "ec", published=[{**EC.as_dict(private=False), "use": "enc"}]),
    "a key that may not verify": by(EC, "ES256", "ec", published=[{**EC.as_dict(private=False), "key_ops": ["deriveKey"]}]),
    "a key for another algorithm": by(EC, "ES256", "ec", published=[{**EC.as_dict(private=False), "alg": "ES384"}]),
    "a curve that does not fit": by(EC_384, "ES384", "ec-384", published=[{**EC.as_dict(private=False), "kid": "ec-384"}]),
    "an algorithm that is not on the list": lambda issuer: issuer.token(alg="RS384"),
    "a withdrawn key": by(OKP, "Ed25519", "okp", published=[]),
    "the key of another, under the id of one": by(OTHER_RSA, "RS256", "one-b", published=[{**EC.as_dict(private=False), "kid": "one-b"}]),
    "a flipped signature": changed(lambda token: flip(token, len(token) - 20)),
    "flipped claims": changed(lambda token: flip(token, token.index(".") + 30)),
    "a zero signature": changed(lambda token: f"{token.rpartition('.')[0]}.{b64(bytes(256))}"),
    "an empty signature": changed(lambda token: f"{token.rpartition('.')[0]}."),
    "a long signature": changed(lambda token: f"{token.rpartition('.')[0]}.{b64(bytes(4096))}"),
    "another spelling of the signature": changed(unused_bits),
    # Form
    "truncated": changed(lambda token: token[:-10]),
    "cut in half": changed(lambda token: token[: len(token) // 2]),
    "only the header": changed(lambda token: token.split(".")[0]),
    "two parts": changed(lambda token: token.rpartition(".")[0]),
    "three dots": changed(lambda token: f"{token}.AAAA"),
    "five parts": changed(lambda token: f"{token}.AAAA.AAAA"),
    "no claims": changed(lambda token: "..".join(token.split(".")[::2])),
    "a dot first": changed(lambda token: f".{token}"),
    "padding": changed(lambda token: ".".join(f"{part}==" for part in token.split("."))),
    "no base64": changed(lambda token: token.replace(".", ".~~~~", 1)),
    "the other base64": changed(lambda token: token.replace("-", "+").replace("_", "/") + "+/"),
    "a blank inside": changed(lambda token: token.replace(".", ". ", 1)),
    "twice": changed(lambda token: f"{token},{token}"),
    "junk": lambda _: "not-a-token",
    "long junk": lambda _: "A" * 20_000,
    "a long token": lambda issuer: issuer.token(more="x" * 20_000),
    "a header that is a list": lambda issuer: signed(b'["RS256"]', issuer.claims(), issuer.keys["one"], "RS256"),
    "claims that are a list": raw_claims(lambda _: b"[]"),
    "claims that are a text": raw_claims(lambda _: b'"x"'),
    "claims that are no JSON": raw_claims(lambda _: b"{iss}"),
    "claims with NaN": raw_claims(lambda issuer: json.dumps(issuer.claims(exp=float("nan"))).encode()),
    "deep claims": raw_claims(lambda issuer: json.dumps(issuer.claims()).encode()[:-1] + b',"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "claims in UTF-16": raw_claims(lambda issuer: json.dumps(issuer.claims()).encode("utf-16")),
    "nested": nested,
    "crit": header(crit=["exp"], exp=NOW + 60),
    "crit that is empty": header(crit=[]),
    "b64": header(b64=False, crit=["b64"]),
    "compressed": header(zip="DEF"),
    "exp twice": doubled("exp", str(NOW - 3600), str(NOW + 3600)),
    "iss twice": doubled("iss", '"https://evil.example"', '"ISS"'),
    "sub twice": doubled("sub", '"ann"', '"root"'),
    "aud twice": doubled("aud", '"https://evil.example"', f'"{RESOURCE}"'),
    "alg twice": lambda issuer: signed(b'{"alg":"none","alg":"RS256","kid":"one"}', issuer.claims(), issuer.keys["one"], "RS256"),
    # Type
    **{f"typ {typ!r}": header(typ=typ) for typ in ("logout+jwt", "dpop+jwt", "id+jwt", "secevent+jwt", "oauth-id-jag+jwt", "at+jwt ", "xat+jwt", 1, None, ["at+jwt"])},
    "an ID token with nonce": lambda issuer: as_jwt(issuer, nonce="n"),
    "an ID token with at_hash": lambda issuer: as_jwt(issuer, at_hash="h"),
    "an ID token with c_hash": lambda issuer: as_jwt(issuer, c_hash="h"),
    "an ID token for its client": lambda issuer: as_jwt(issuer, aud=[RESOURCE, "a-client"], azp="a-client"),
    "a plain ID token": lambda issuer: as_jwt(issuer, client_id=..., scope=...),
    "an ID token of Keycloak": lambda issuer: as_jwt(issuer, typ="ID"),
    "a refresh token of Keycloak": lambda issuer: as_jwt(issuer, typ="Refresh"),
    "an ID token of Cognito": lambda issuer: as_jwt(issuer, token_use="id"),
    "a logout token": lambda issuer: as_jwt(issuer, events={"http://schemas.openid.net/event/backchannel-logout": {}}),
    # Issuer
    "iss with a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "iss in capitals": lambda issuer: issuer.token(iss=issuer.url.replace("http", "HTTP")),
    "iss of another tenant": lambda issuer: issuer.token(iss=f"{issuer.url}/tenant-b"),
    "iss with a port more": lambda issuer: issuer.token(iss=f"{issuer.url}0"),
    "iss with a query": lambda issuer: issuer.token(iss=f"{issuer.url}?x"),
    "iss that begins so": lambda issuer: issuer.token(iss=issuer.url[:-1]),
    "iss in a list": lambda issuer: issuer.token(iss=[issuer.url]),
    "no iss": claims(iss=...),
    "an empty iss": claims(iss=""),
    "another issuer": claims(iss="https://evil.example"),
    # Audience
    "no aud": claims(aud=...),
    "an empty aud": claims(aud=""),
    "an empty list of aud": claims(aud=[]),
    "aud that is no text": claims(aud=1),
    "aud with what is no text": claims(aud=[RESOURCE, 1]),
    "aud that is an object": claims(aud={RESOURCE: 1}),
    "another aud": claims(aud="https://other.example.com/mcp"),
    "a list of others": claims(aud=["https://other.example.com/mcp", "https://bridge.example.com/other"]),
    "aud that begins so": claims(aud="https://bridge.example.com/mc"),
    "aud that goes on": claims(aud="https://bridge.example.com/mcp/x"),
    "aud of the origin": claims(aud="https://bridge.example.com"),
    "aud with another scheme": claims(aud="http://bridge.example.com/mcp"),
    "aud with another port": claims(aud="https://bridge.example.com:8443/mcp"),
    "aud with another path case": claims(aud="https://bridge.example.com/MCP"),
    "aud with a query": claims(aud="https://bridge.example.com/mcp?x=1"),
    "aud with a fragment": claims(aud="https://bridge.example.com/mcp#x"),
    "aud with a user": claims(aud="https://bridge.example.com@evil.example/mcp"),
    "aud of another endpoint": claims(aud="https://bridge.example.com/servers/files/mcp"),
    "aud that is the client": claims(aud="a-client"),
    # Times
    "expired": claims(exp=NOW - 3600),
    "expired long ago": claims(exp=0),
    "no exp": claims(exp=...),
    "exp is null": claims(exp=None),
    "exp as a text": claims(exp=str(NOW + 3600)),
    "exp as a float": claims(exp=NOW + 3600.5),
    "exp is negative": claims(exp=-1),
    "exp is true": claims(exp=True),
    "exp is huge": claims(exp=10**18),
    "exp is larger than any": claims(exp=10**400),
    "exp is in a hundred years": claims(exp=NOW + 100 * 366 * 86400),
    "exp in milliseconds": claims(exp=(NOW + 3600) * 1000),
    "exp is a list": claims(exp=[NOW + 3600]),
    "exp is Infinity": raw_claims(lambda issuer: json.dumps(issuer.claims(exp=float("inf"))).encode()),
    "nbf in the future": claims(nbf=NOW + 3600),
    "nbf as a text": claims(nbf="0"),
    "nbf as a float": claims(nbf=1.5),
    "iat in the future": claims(iat=NOW + 3600),
    "iat as a text": claims(iat=str(NOW)),
    "iat is negative": claims(iat=-5),
    # Subject, proof
    "no sub": claims(sub=...),
    "an empty sub": claims(sub=""),
    "a blank sub": claims(sub="  "),
    "sub is a number": claims(sub=1),
    "sub is null": claims(sub=None),
    "sub is a list": claims(sub=["ann"]),
    "sub with a line break": claims(sub="ann\nroot"),
    "sub with a zero": claims(sub="ann\0"),
    "a long sub": claims(sub="a" * 300),
    "bound to a key": claims(cnf={"jkt": "x"}),
    "bound to a certificate": claims(cnf={"x5t#S256": "x"}),
    "bound to nothing": claims(cnf=None),
}  # fmt: skip


def oauth(issuer: Issuer, **more: Any) -> ResourceServerSettings:
    return ResourceServerSettings.model_validate(issuer.settings(**more))


def test_there_are_enough_of_them() -> None:
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_token_that_breaks_one_rule_is_refused(
    name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with issuing() as issuer, serving(oauth=oauth(issuer, scopes=["tools"])) as http:
        good = issuer.token()
        bad = ATTACKS[name](issuer)
        for token, status in ((good, 200), (bad, 401), (good, 200), (bad, 401)):
            headers = modern_headers("ping", {}) | {"authorization": f"Bearer {token}"}
            response = await http.post(modern_body("ping"), **headers)
            assert response.status_code == status, (name, response.text)
        bad_response = await http.post(request("ping"), authorization=f"Bearer {bad}")
        assert bad_response.status_code == 401
        challenge = bad_response.headers["www-authenticate"]
        assert challenge.startswith("Bearer ")
        assert 'resource_metadata="https://bridge.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
        assert 'error="invalid_token"' in challenge
        output = capsys.readouterr()
        for place in (challenge, bad_response.text, caplog.text, output.out, output.err):
            for part in (bad, *bad.split(".")):
                assert len(part) < 8 or part not in place
