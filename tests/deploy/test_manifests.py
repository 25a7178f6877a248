"""The manifests of `deploy/` for several bridges, by schemas and the bridge's own checks; Caddy before real ones."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import httpx2
import pytest
import yaml

from mcpbridge.app.cli.daemon.fleet import fleet_command
from mcpbridge.config.load import read
from support.fleet_clients import HEADERS, INITIALIZE, message
from support.ports import free_port
from support.redis_server import Server
from support.replicas import fleet, needs_fleet, until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VALIDATE = ROOT / ".venv-manifests/bin/kubernetes-validate"
ENVIRONMENT = {
    "REDIS_PASSWORD": "the password of Redis",
    "FLEET_KEY": "the key of the whole fleet",
    "POD_NAME": "mcpbridge-1",
    "POD_IP": "10.0.0.5",
    "BRIDGE": "bridge-1",
}


def objects() -> dict[str, dict[str, Any]]:
    """The Kubernetes objects, by kind."""
    found = [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text("utf-8"))]
    return {str(one["kind"]): one for one in found}


def container() -> dict[str, Any]:
    [found] = objects()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.skipif(not VALIDATE.exists(), reason="no kubernetes-validate: `make manifests` installs it")
@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_the_schemas_of_kubernetes_accept_each_object(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([VALIDATE, "--strict", path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(path.read_text("utf-8").replace("metadata:", "metadatum:", 1))
    done = subprocess.run([VALIDATE, "--strict", wrong], check=False, capture_output=True, text=True)
    assert done.returncode != 0


@pytest.mark.parametrize("where", ["kubernetes", "compose"])
def test_the_bridge_accepts_the_configuration(where: str, tmp_path: Path) -> None:
    path = DEPLOY / "fleet/servers.toml"
    if where == "kubernetes":
        path = tmp_path / "servers.toml"
        path.write_text(objects()["ConfigMap"]["data"]["servers.toml"])
    settings = read(path, ENVIRONMENT).settings
    assert settings.fleet.listen == "0.0.0.0:7946"
    assert settings.store.kind == "redis"
    named = {one["name"] for one in container()["env"]} | {"BRIDGE"}
    assert set(re.findall(r"\$\{(\w+)\}", path.read_text("utf-8"))) <= named


def test_a_pod_has_the_time_to_drain() -> None:
    words = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert words[:3] == ["mcpbridge", "fleet", "drain"]
    command = fleet_command.commands["drain"]
    context = command.make_context("drain", words[3:])
    assert isinstance(context, click.Context)
    grace = objects()["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= context.params["wait"] + 20
    assert container()["readinessProbe"]["httpGet"]["path"] == "/healthz/ready"
    assert container()["livenessProbe"]["httpGet"]["path"] == "/healthz", "draining is no reason to be killed"


def test_what_the_objects_name_is_there() -> None:
    found = objects()
    assert found.keys() >= {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"}
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    ports = {one["name"] for one in container()["ports"]}
    assert {port["port"] for rule in found["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]} == ports


def test_the_compose_file_names_what_there_is() -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    bridges = [name for name in document["services"] if name.startswith("bridge-")]
    behind = re.findall(r"bridge-\d(?=:8808)", (DEPLOY / "fleet/Caddyfile").read_text("utf-8"))
    assert behind == bridges
    for name, service in document["services"].items():
        if name in bridges:
            assert service["environment"]["BRIDGE"] == name
            assert service["environment"].keys() >= {"FLEET_KEY", "REDIS_PASSWORD"}
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in document["volumes"]
    assert (DEPLOY / "compose.yaml").parent.joinpath(document["services"]["bridge-1"]["build"], "Dockerfile").exists()


def test_envoy_repeats_nothing() -> None:
    document = yaml.safe_load((DEPLOY / "fleet/envoy.yaml").read_text("utf-8"))
    assert {"retry_policy", "retry_priority", "hedge_policy"} & set(keys(document)) == set()
    [cluster] = document["static_resources"]["clusters"]
    assert cluster["health_checks"][0]["http_health_check"]["path"] == "/healthz/ready"
    assert len(cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 3


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in cast("dict[object, object]", value).items():
            yield str(name)
            yield from keys(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from keys(one)


@needs_fleet[0]
@needs_fleet[1]
@pytest.mark.skipif(shutil.which("caddy") is None, reason="no Caddy: `make proxies` installs Debian's")
def test_caddy_sends_each_request_to_another_bridge(tmp_path: Path) -> None:
    redis, port = Server(tmp_path / "redis").start(), free_port()
    process: subprocess.Popen[bytes] | None = None
    try:
        with fleet(tmp_path, redis, size=3) as found, httpx2.Client(trust_env=False, timeout=60) as http:
            text = (
                (DEPLOY / "fleet/Caddyfile").read_text("utf-8").replace("\n:8808 {", f"\n:{port} {{\n\tbind 127.0.0.1")
            )
            for number, replica in enumerate(found.replicas, 1):
                text = text.replace(f"bridge-{number}:8808", f"127.0.0.1:{replica.port}")
            site = tmp_path / "Caddyfile"
            site.write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{text}")
            with (tmp_path / "caddy.txt").open("wb") as log:
                command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(site)]
                process = subprocess.Popen(command, stdout=log, stderr=log)
            url = f"http://127.0.0.1:{port}/mcp"
            headers = {**HEADERS, "host": f"127.0.0.1:{found.port}"}
            until(lambda: http.post(url, json=INITIALIZE, headers=headers).status_code == 200, "it serves")
            session = http.post(url, json=INITIALIZE, headers=headers).headers["mcp-session-id"]
            for number in range(9):
                answer = http.post(url, json=message("ping", number), headers={**headers, "mcp-session-id": session})
                assert answer.status_code == 200, answer.text
            shown = json.loads(found.replicas[0].command("fleet", "status", "--json").stdout)
            passed = [row["forwarded"]["answered"] for row in shown["members"]]
            assert sum(passed) >= 4, passed
            assert sum(1 for count in passed if count) == 2, "those that do not have the session"
    finally:
        if process is not None:
            process.kill()
            process.wait(30)
        redis.kill()
