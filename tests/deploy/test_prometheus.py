"""`deploy/grafana-dashboard.json` and `deploy/prometheus-alerts.yml`, tried with Prometheus itself (issue 24)."""

import json
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import Client, message
from support.ports import free_port
from support.real_sign_in import local_server
from support.redis_server import Server
from support.replicas import Fleet, fleet, needs_fleet, until

ROOT = Path(__file__).parents[2]
ALERTS, DASHBOARD = ROOT / "deploy/prometheus-alerts.yml", ROOT / "deploy/grafana-dashboard.json"
TOKEN = "the token of who collects metrics"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no Prometheus: `make prometheus` installs Debian's",
)


@needs_prometheus
def test_each_alert_is_raised_for_its_reason_alone(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    shutil.copy(Path(__file__).parent / "alerts_test.yml", tmp_path / "test.yml")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"alert: (\w+)", ALERTS.read_text("utf-8"))
    tried = (Path(__file__).parent / "alerts_test.yml").read_text("utf-8")
    assert [name for name in names if f'alertname="{name}"' not in tried] == []


@contextmanager
def collecting(found: Fleet, directory: Path) -> Generator[str]:
    """Prometheus, which collects from all bridges; its address."""
    port = free_port()
    targets = ", ".join(f'"127.0.0.1:{one.port}"' for one in found.replicas)
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f'rule_files: ["{ALERTS}"]\n'
        "scrape_configs:\n"
        f'  - job_name: mcpbridge\n    authorization: {{credentials: "{TOKEN}"}}\n'
        f"    static_configs: [{{targets: [{targets}]}}]\n"
    )
    command = ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "prometheus.txt").open("wb") as log:
        process = subprocess.Popen([*command, f"--storage.tsdb.path={directory / 'data'}"], stdout=log, stderr=log)
    try:
        until(lambda: httpx2.get(f"http://127.0.0.1:{port}/-/ready", trust_env=False).is_success, "Prometheus is up")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


@needs_fleet[0]
@needs_fleet[1]
@needs_prometheus
def test_every_query_of_the_dashboard_returns_data(tmp_path: Path) -> None:
    digest = sha256(TOKEN.encode()).hexdigest()
    more = f'[[http.tokens]]\nname = "prometheus"\nmetrics = true\nsha256 = "{digest}"\n'
    redis = Server(tmp_path / "redis").start()
    try:
        with (
            fleet(tmp_path, redis, size=2, servers=local_server("rich"), more=more) as found,
            collecting(found, tmp_path) as prometheus,
            httpx2.Client(trust_env=False, timeout=60) as http,
        ):
            first, second = found.replicas
            client, count = Client(http).begin(first), 0

            def has_data(expression: str) -> bool:
                nonlocal count
                count += 1
                call = message("tools/call", count, name="rich__echo", arguments={"text": "x"})
                assert client.post(second, call).status_code == 200
                return any(value == value for value in values(http, prometheus, expression))  # not NaN

            assert len(queries()) >= 15
            for expression in queries():
                until(lambda expression=expression: has_data(expression), expression)
            firing = values(http, prometheus, 'ALERTS{alertstate="firing"}')
            assert firing == []
    finally:
        redis.kill()


def queries() -> list[str]:
    """Each query of the dashboard, with its variables filled in."""
    document = json.loads(DASHBOARD.read_text("utf-8"))
    found = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    return [one.replace("$__rate_interval", "1m").replace("$job", "mcpbridge") for one in found]


def values(http: httpx2.Client, prometheus: str, expression: str) -> list[float]:
    answer: dict[str, Any] = http.get(f"{prometheus}/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", answer
    return [float(one["value"][1]) for one in answer["data"]["result"]]
