"""Secrets in formats of providers and tools that `secret_samples.py` does not have, and as many texts that look so.

They were written after the detectors, and counted before anything was mended (`tests/pipeline/test_redaction_corpus.py`
has the figures); what they taught was mended by class. No value was ever issued by anybody.
"""

import base64
import json
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase, digits

from support.benign_samples import BenignSample
from support.secret_samples import ALNUM, BASE32, HEX, URL_SAFE, Draw, SecretSample

LOWER = ascii_lowercase + digits
UPPER = ascii_uppercase + digits
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def _prefixed(draw: Draw) -> Iterator[tuple[str, str, str]]:
    """Tokens that show who issued them; nothing else does."""
    c = draw.chars
    yield "adobe", f"p8e-{c(LOWER, 32)}", "client uses @@ now"
    yield "dynatrace", f"dt0c01.{c(BASE32, 24)}.{c(BASE32, 64)}", "ingest with @@"
    yield "frame-io", f"fio-u-{c(URL_SAFE, 64)}", "@@"
    yield (
        "grafana-legacy",
        base64.b64encode(json.dumps({"k": c(ALNUM, 32), "n": "ci", "id": 1}).encode()).decode(),
        "@@",
    )
    yield "harness", f"pat.{c(URL_SAFE, 22)}.{c(HEX, 24)}.{c(ALNUM, 20)}", "harness login with @@"
    yield "jfrog", f"AKCp{c(ALNUM, 69)}", "artifactory: @@"
    yield "launchdarkly", f"api-{draw.uuid()}", "flag reader @@ was rotated"
    yield "lob", f"live_{c(HEX, 35)}", "postcards go out with @@"
    yield "mapbox", f"sk.eyJ{c(URL_SAFE, 80)}.{c(URL_SAFE, 22)}", "tiles: @@"
    yield "prefect", f"pnu_{c(ALNUM, 36)}", "prefect cloud @@"
    yield "readme", f"rdme_xn8s9h{c(LOWER, 64)}", "@@"
    yield "scalingo", f"tk-us-{c(URL_SAFE, 48)}", "@@"
    yield "shippo", f"shippo_live_{c(HEX, 40)}", "labels with @@"
    yield "sourcegraph", f"sgp_{c(HEX, 16)}_{c(HEX, 40)}", "src login @@"
    yield "infracost", f"ico-{c(ALNUM, 32)}", "@@"
    yield "duffel", f"duffel_live_{c(URL_SAFE, 43)}", "flights: @@"
    yield "paypal", f"access_token$production${c(LOWER, 16)}${c(HEX, 32)}", "braintree: @@"
    yield "plaid", f"access-production-{draw.uuid()}", "bank link @@"
    yield "linkedin", f"WPL_AP1.{c(ALNUM, 16)}.{c(ALNUM, 6)}==", "linkedin app @@"
    yield "twitter-bearer", f"AAAAAAAAAAAAAAAAAAAAA{c(ALNUM, 20)}%2B{c(ALNUM, 20)}%3D{c(ALNUM, 50)}", "x api: @@"
    yield "twitch", f"oauth:{c(LOWER, 30)}", "irc pass @@"
    yield "mongodb-atlas", f"mdb_sa_sk_{c(URL_SAFE, 40)}", "@@"
    yield "voyage", f"pa-{c(URL_SAFE, 43)}", "embeddings @@"
    yield "openrouter", f"sk-or-v1-{c(HEX, 64)}", "router @@"
    yield "bedrock", f"ABSK{draw.base64(99)}", "bedrock @@"
    yield "gcp-hmac", f"GOOG1E{c(UPPER, 55)}", "bucket access @@"
    yield "fcm", f"AAAA{c(URL_SAFE, 7)}:APA91b{c(URL_SAFE, 134)}", "push with @@"
    yield "yandex", f"AQVN{c(URL_SAFE, 36)}", "speech kit @@"
    yield "slack-config", f"xoxe.xoxp-1-{c(ALNUM, 160)}", "@@"
    yield "xprv", f"xprv9s21ZrQH143K{c(BASE58, 95)}", "cold wallet @@"
    yield "jwe", f"eyJ{c(URL_SAFE, 40)}..{c(URL_SAFE, 16)}.{c(URL_SAFE, 60)}.{c(URL_SAFE, 22)}", "@@"
    yield "azure-devops", f"{c(ALNUM, 76)}AZDO{c(ALNUM, 4)}", "az devops @@"
    yield "cratesio", f"cio{c(ALNUM, 32)}", "publish with @@"
    yield "gitlab-scim", f"glsoat-{c(URL_SAFE, 20)}", "@@"
    yield "supabase-pat", f"sbp_{c(HEX, 40)}", "@@"
    yield "neon", f"napi_{c(LOWER, 64)}", "@@"
    yield "resend", f"re_{c(ALNUM, 8)}_{c(ALNUM, 24)}", "mail with @@"
    yield "langfuse", f"sk-lf-{draw.uuid()}", "@@"
    yield "weights-and-biases", f"wandb_v1_{c(ALNUM, 77)}", "@@"
    yield "vercel-blob", f"vercel_blob_rw_{c(ALNUM, 16)}_{c(ALNUM, 30)}", "@@"
    yield "turso", f"eyJ{c(URL_SAFE, 34)}.eyJ{c(URL_SAFE, 60)}.{c(URL_SAFE, 86)}", "turso db @@"
    yield (
        "elastic",
        base64.b64encode(f"{c(URL_SAFE, 20)}:{c(URL_SAFE, 22)}".encode()).decode(),
        "Authorization: ApiKey @@",
    )


def _in_files(draw: Draw) -> Iterator[tuple[str, str, str]]:
    """Values that only the place where they are shows."""
    c = draw.chars
    yield "header", c(ALNUM, 32), "Fastly-Key: @@"
    yield "header", c(ALNUM, 64), "X-MBX-APIKEY: @@"
    yield "header", c(HEX, 37), "X-Auth-Email: a@b.example\nX-Auth-Key: @@"
    yield "header", c(HEX, 32), "X-Algolia-API-Key: @@"
    yield "header", c(HEX, 32), "api-key: @@"
    yield "header", f"00{c(URL_SAFE, 40)}", "Authorization: SSWS @@"
    yield "header", c(URL_SAFE, 20), "Authorization: Token token=@@"
    yield "header", c(HEX, 40), "Authorization: token @@"
    yield "header", c(HEX, 32), "authorization: @@"
    yield "header", c(ALNUM, 26), "PRIVATE-TOKEN: @@"
    yield "header", c(HEX, 40), "X-Vault-Wrap: no\nX-Consul-Token: @@"
    yield "header", draw.base64(27), "Ocp-Apim-Subscription-Key: @@"
    yield "url", c(HEX, 64), "https://serpapi.com/search?engine=google&api_key=@@&q=coffee"
    yield "url", c(ALNUM, 20), "cloudinary://123456789012345:@@@demo"
    yield "url", c(HEX, 32), "https://9f8e7d6c5b4a39281706f5e4d3c2b1a0:@@@sentry.example/42"
    yield "url", c(ALNUM, 14), "ftp://deploy:@@@ftp.example.net/pub"
    yield "url", draw.base64(40).rstrip("="), "https://acme.azurewebsites.net/api/run?code=@@"
    yield "url", c(BASE32, 32), "otpauth://totp/Acme:ada?secret=@@&issuer=Acme"
    yield "url", c(HEX, 64), "https://b.s3.amazonaws.com/x?X-Amz-Expires=900&X-Amz-Signature=@@"
    yield "url", c(URL_SAFE, 40), "https://app.example.net/cb?state=1#access_token=@@&expires_in=3600"
    yield "url", c(ALNUM, 24), "index-url = https://deploy:@@@pypi.acme.example/simple"
    yield "command", c(ALNUM, 18), "redis-cli -h cache -a @@ ping"
    yield "command", c(ALNUM, 18), "PGPASSWORD=@@ psql -h db shop"
    yield "command", c(ALNUM, 18), "openssl rsa -in key.pem -passin pass:@@"
    yield "command", c(ALNUM, 18), "curl --user ada:@@ https://example.net"
    yield "command", c(ALNUM, 18), "wget --password=@@ --user=ada https://example.net/x"
    yield "command", c(ALNUM, 18), "net use Z: \\\\server\\share /user:ada /password:@@"
    yield "command", c(ALNUM, 20), "kubectl create secret generic db --from-literal=password=@@"
    yield "command", c(ALNUM, 20), "htpasswd -b .htpasswd ada --password @@"
    yield "file", c(ALNUM, 16), "db.example.com:5432:shop:app:@@"
    yield "file", c(ALNUM, 22) + "!", "define('DB_PASSWORD', '@@');"
    yield "file", c(ALNUM + "!#%^*", 64), "define( 'AUTH_KEY',         '@@' );"
    yield "file", c(ALNUM, 40), '<add key="ApiKey" value="@@" />'
    yield "file", c(ALNUM, 20), '<add key="ClearTextPassword" value="@@"/>'
    yield "file", c(ALNUM, 16), "spring.datasource.password=@@"
    yield "file", c(ALNUM, 16), "storePassword=@@\nkeyAlias=upload"
    yield "file", draw.base64(18), "kind: Secret\ndata:\n  password: @@\n"
    yield "file", draw.base64(32), "[Interface]\nPrivateKey = @@\nAddress = 10.0.0.2/32"
    yield "file", draw.base64(32), "[Peer]\nPresharedKey = @@"
    yield "file", "sunny-Garden-88", 'network={\n  ssid="home"\n  psk="@@"\n}'
    yield "file", "sunny-Garden-88", "wpa_passphrase=@@"
    yield "file", "0x" + c(HEX, 64), "PRIVATE_KEY=@@"
    yield "file", "L" + c(BASE58, 51), "wif: @@"
    yield "file", "abandon ability able about above absent absorb abstract absurd abuse access zoo", "mnemonic: @@"
    yield "file", c(ALNUM, 40), "CO_API_KEY=@@"
    yield "file", c(HEX, 40), "DEEPGRAM_API_KEY=@@"
    yield "file", draw.uuid(), "SNYK_TOKEN=@@"
    yield "file", draw.base64(90), "aws_session_token = @@"
    yield "file", draw.base64(48), "Endpoint=https://a.azconfig.io;Id=abcd;Secret=@@"
    yield "file", draw.base64(64), "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=@@;"
    yield "file", c(ALNUM, 32), '{"github-oauth": {"gitea.example": "x"}, "bearer": {"repo.example": "@@"}}'
    yield "file", c(ALNUM, 16), "security:\n  keystore:\n    keyStorePassword: @@"
    yield (
        "file",
        f"{c(ascii_lowercase, 4)}-{c(ascii_lowercase, 4)}-{c(ascii_lowercase, 4)}-{c(ascii_lowercase, 4)}",
        ("APP_SPECIFIC_PASSWORD=@@"),
    )
    yield "file", c(ALNUM, 24), "requirepass @@\nmaxmemory 1gb"
    yield "file", c(ALNUM, 24), "masterauth @@"
    yield "file", c(ALNUM, 20), "smtp_sasl_password_maps = static:ada:x\nrelay_password = @@"
    yield "file", c(ALNUM, 20), "- name: DB_PASS\n  value: @@"
    yield "file", c(HEX, 64), "SECRET_KEY_BASE=@@"
    yield "file", "django-insecure-" + c(LOWER + "!@#%^&*(-_=+)", 50), "SECRET_KEY = '@@'"
    yield "prose", "Sommer2026!", "the wifi password is @@ for guests"
    yield "prose", "Tr0ub4dor&3", "Das Passwort lautet @@ und gilt bis Mai."
    yield "prose", "Tr0ub4dor&3", "mot de passe : @@"
    yield "prose", "Tr0ub4dor&3", "contraseña: @@"
    yield "prose", "Tr0ub4dor&3", "Passwort: @@"
    yield "prose", "Tr0ub4dor&3", "user: ada\npw: @@"
    yield "prose", "Tr0ub4dor&3", "login ada, pass @@, host db1"
    yield "prose", "839201", "Passcode: @@"
    yield "prose", c(ALNUM, 24), "here is your new API key: @@ (keep it safe)"
    yield "prose", c(ALNUM, 24), "use token @@ for the staging server"
    yield "prose", c(ALNUM, 12), "temporary password for ada is @@"


def provider_secrets() -> list[SecretSample]:
    """All of them."""
    draw = Draw("providers")
    found = [*_prefixed(draw), *_in_files(draw)]
    return [SecretSample(kind, text.replace("@@", value, 1), value) for kind, value, text in found]


def _look_alikes(draw: Draw) -> Iterator[tuple[str, str]]:
    c, uuid = draw.chars, draw.uuid
    for text in (
        f"HEAD is now at {c(HEX, 8)} Rotate the token",
        f"oid sha256:{c(HEX, 64)}\nsize 4012",
        f"Reverts {c(HEX, 40)}.",
        f"https://gitlab.com/acme/site/-/commit/{c(HEX, 40)}?view=parallel",
        f"Subproject commit {c(HEX, 40)}",
        f"From {c(HEX, 40)} Mon Sep 17 00:00:00 2001",
        json.dumps({"commit": {"id": c(HEX, 40), "parents": [c(HEX, 40)]}}),
        f"pick {c(HEX, 7)} fix: secret rotation",
        f"blame: {c(HEX, 8)} (Ada 2026-01-01 12:00:00 +0100 12) password = None",
    ):
        yield "git", text
    for text in (
        json.dumps({"userId": uuid(), "sessionCount": 4}),
        f"Idempotency-Key: {uuid()}",
        f"x-correlation-id: {uuid()}",
        f"device {uuid().upper()} paired",
        f"PARTUUID={uuid()} / ext4 defaults 0 1",
        f"urn:uuid:{uuid()}",
        "01J9Z3NDEKTSV4RRFFQ69G5FAV created",
        json.dumps({"_id": {"$oid": c(HEX, 24)}}),
        "clh3z9k2r0000qzrmn831i7rn updated",
        "0ujtsYcgvSTl8PAuAdqWYSMnLOv queued",
        f"nanoid V1StGXR8_Z5jdHi6B-myT, cuid {c(LOWER, 25)}",
        "tweet 1879234567890123456 by user 44196397",
        f"spotify:track:{c(ALNUM, 22)}",
        f"https://www.figma.com/file/{c(ALNUM, 22)}/Checkout",
        f"https://drive.google.com/file/d/1{c(URL_SAFE, 32)}/view",
        f"https://www.notion.so/acme/Roadmap-{c(HEX, 32)}",
        f"https://zoom.us/rec/share/{c(URL_SAFE, 40)}",
        "GTM-K4X9PZQ, G-9ZK3L2M1N0, UA-12345678-1",
        f'<div class="g-recaptcha" data-sitekey="6Lc{c(URL_SAFE, 37)}"></div>',
        f"event evt_{c(ALNUM, 24)} for price_{c(ALNUM, 24)} and pi_{c(ALNUM, 24)}",
        f"message-id: <CA+{c(ALNUM, 40)}@mail.gmail.com>",
        "pod api-7d9f8b6c5-x2x4z on ip-10-0-3-17.ec2.internal",
        "sg-0a1b2c3d4e5f67890, vpc-0123456789abcdef0, ami-0abcdef1234567890",
        "subscription 00000000-0000-0000-0000-000000000000, tenant common",
        f"X-Hub-Signature-256: sha256={c(HEX, 64)}",
        f"CSRF failure, reference {c(UPPER, 12)}",
    ):
        yield "identifier", text
    for text in (
        f"data:image/jpeg;base64,/9j/4AAQSkZJRgABAQAAAQABAAD{draw.base64(150)}",
        f'<img src="data:image/svg+xml;base64,PHN2ZyB4bWxucz0i{draw.base64(90)}">',
        json.dumps({"thumbnail": f"data:image/webp;base64,UklGR{draw.base64(60)}"}),
        f"favicon: data:image/x-icon;base64,AAABAAEAEBAAAAEAIAB{draw.base64(60)}",
        f'"mappings": "AAAA,SAASA,{c(ascii_uppercase, 6)},KAAK,CAAC"',
        f"//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0{draw.base64(30)}",
    ):
        yield "media", text
    for text in (
        f"sha1-{draw.base64(20)}",
        f'checksum = "{c(HEX, 64)}"',
        f'{{file = "x.whl", hash = "sha256:{c(HEX, 64)}"}}',
        f'"resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz#{c(HEX, 40)}"',
        f'sha256 = "{c(LOWER, 52)}";',
        f"narHash: sha256-{draw.base64(32)}",
        f"  --hash=sha256:{c(HEX, 64)} \\",
        f"layer {c(HEX, 12)}: Pull complete, Digest: sha256:{c(HEX, 64)}",
        f"gpg: using RSA key {c(HEX.upper(), 40)}",
        f"Key fingerprint = {' '.join(c(HEX.upper(), 4) for _ in range(10))}",
        f"tx hash 0x{c(HEX, 64)} in block 19000001",
        f"crc32 {c(HEX, 8)} md5 {c(HEX, 32)} ok",
        f"bafybeig{c('abcdefghijklmnopqrstuvwxyz234567', 51)}",
        f'ETag: W/"{c(HEX, 32)}"\nLast-Modified: Mon, 01 Jan 2026 00:00:00 GMT',
        f"script-src 'sha256-{draw.base64(32)}'",
        f"btih:{c(HEX, 40)}&dn=debian-13",
    ):
        yield "digest", text
    for text in (
        '"use strict";var t=e(123),n=r.n(t);o.token=function(e){return i(e).key},o.auth=u;',
        "const{secret:a,...b}=c;export{a as s,b as t};",
        f".Button_root__{c(ALNUM, 5)}{{color:red}}.Card_key__{c(ALNUM, 5)}{{}}",
        f"chunk-{c(UPPER, 8)}.js 12.3 kB, main-{c(UPPER, 8)}.js 230 kB",
        "!function(){try{var e=window,n=(new e.Error).stack;n&&(e._ids=e._ids||{},e._ids[n]='x')}catch(e){}}();",
        "headers['Authorization'] = 'Bearer ' + token",
        'headers = {"Authorization": f"Bearer {settings.token}"}',
        "api_key = config['api_key'] or os.getenv('API_KEY')",
        "docker login --username ada --password-stdin",
        "securitySchemes:\n  bearerAuth:\n    type: http\n    bearerFormat: JWT",
        "existingSecret: shop-db\nsecretName: tls-cert-2026",
        "valueFrom:\n  secretKeyRef:\n    name: shop\n    key: db-password",
        "ARG TOKEN\nENV TOKEN=$TOKEN",
        "password_hash_algorithm: argon2id\npassword_updated_at: 2026-01-04T10:00:00Z",
        json.dumps({"token_expires_at": 1772619731, "refresh_token_expires_in": 2592000}),
        json.dumps({"key": "PROJ-1234", "id": "10021", "self": "https://jira.example/rest/api/2/issue/10021"}),
        json.dumps({"key": "app.settings.password.title", "value": "Change your password"}),
        json.dumps({"Key": "photos/2026/03/IMG_2041.jpg", "Size": 120331}),
        "cache key users:42:profile:v3 hit",
        "redis> GET session:count",
        "token bucket: rate 10/s, burst 20",
        "Token usage: prompt 1204, completion 88, total 1292",
        "secret_arn = aws_secretsmanager_secret.db.arn",
        "ssl_certificate_key /etc/nginx/tls/site.key;",
        'if password == "": raise ValueError("password must not be empty")',
        'assert response.json()["detail"] == "Invalid API key"',
        "type Token struct { Kind TokenKind; Value string }",
        "pass: 41 tests, fail: 0, skip: 2",
        "pin: PA10, mode: output",
        "The pass 20260304 over Berlin begins at 19:31.",
        "foreign key constraint fk_order_customer_1842 on orders(customer_id)",
    ):
        yield "code", text
    for text in (
        "ISBN 9780306406157, EAN 4006381333931, ASIN B08N5WRWNW",
        "UPS 1Z12345E0205271688, DHL JD014600003889275910, USPS 9400111899223197428490",
        "VIN WVWZZZ1JZXW000001, plate B-AB 1234",
        "52.5200066,13.4049540; 48.8566, 2.3522; geo:37.786971,-122.399677",
        "geohash u33dc0cpke7v, plus code 9F4MG9C3+XX, what3words filled.count.soap",
        "1772619731 1772619731123 1772619731123456 2026-W10-3 20260304T102211Z",
        "v1.24.0-rc.3+build.20260304.gabc1234, 4.18.0-513.5.1.el8_9.x86_64",
        "python-3.12.8-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "IMEI 490154203237518, ICCID 89490200001234567890, serial C02XG2JUH7JG",
        "DOI 10.1038/s41586-021-03819-2, arXiv:2401.12345v2, PMID 34265844",
        "CVE-2026-12345, GHSA-jfh8-c2jp-5v3q, CWE-79",
        "SMILES CC(C)CC1=CC=C(C=C1)C(C)C(=O)O InChIKey=HEFNNWSXXWATRW-UHFFFAOYSA-N",
        "ATGCGTACGTTAGCCTAGGATCCGATCGTAGCTAGCATCGATCGATCGATTACG",
        "flight LH2049 seat 14C booking ref X4K9QZ",
        "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7",
        "r1bqkbnr/pppp1ppp/2n5/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3",
        "License: MIT OR Apache-2.0; SPDX-License-Identifier: GPL-3.0-or-later",
        "bitcoin address bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq received 0.1",
    ):
        yield "number", text


def provider_look_alikes() -> list[BenignSample]:
    """All of them."""
    return [BenignSample(kind, text) for kind, text in _look_alikes(Draw("look-alikes"))]
