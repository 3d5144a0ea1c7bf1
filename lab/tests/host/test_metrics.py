# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Prometheus scrapes ramsliced on a simulated machine; rules and dashboard find series."""

import json
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from ramlab.common import ROOT

# One machine and one order: the last test spoils the settings of the daemon.
pytestmark = pytest.mark.xdist_group("metrics")

PATIENCE_SECONDS = 300
RULES = ROOT / "packaging/prometheus/ramslice.rules.yml"
RULE_TESTS = ROOT / "packaging/prometheus/ramslice.rules.test.yml"
DASHBOARD = ROOT / "packaging/grafana/ramslice.json"
# What Grafana fills in.
VARIABLES = {"$instance": "machine", "$__rate_interval": "1m"}
# Series that exist only after something went wrong.
MAY_BE_EMPTY = ("ramslice_failed_slices_total", "ramslice_backend_errors_total", "quarantined")
REFUSED = "RamsliceSettingsRefused"
SETTINGS = """schema_version = 1
mode = "on"
period_seconds = 0.1
[energy]
granularity = "slice"
time_factor = "1"
[metrics]
listen = "127.0.0.1:{port}"
"""


def dashboard_expressions():
    """[(panel, expression)], with variables filled in."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            found.append(pytest.param(text, id=f"{panel['title']}-{target.get('refId', '')}"))
    return found


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(what, condition):
    """Waits for a condition to hold and returns its value."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"waited {PATIENCE_SECONDS} s in vain for {what}")


class MonitoredDaemon:
    """ramsliced on a simulated machine, and a Prometheus that scrapes it every second."""

    def __init__(self, folder, simulated):
        self.settings, self.log = folder / "ramsliced.toml", folder / "log"
        self.metrics_port, self.port = free_port(), free_port()
        self.settings.write_text(SETTINGS.format(port=self.metrics_port))
        targets = {"targets": [f"127.0.0.1:{self.metrics_port}"], "labels": {"instance": "machine"}}
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "ramslice", "static_configs": [targets]}],
        }))
        with self.log.open("wb") as log:
            self.daemon, self.prometheus = (
                subprocess.Popen(line, stdout=log, stderr=log) for line in (
                    [simulated, "--config", self.settings, "--dir", folder, "--slices", "64",
                     "--speed", "300"],
                    ["prometheus", f"--config.file={folder}/prometheus.yml",
                     f"--storage.tsdb.path={folder}/data",
                     f"--web.listen-address=127.0.0.1:{self.port}"]))

    def end(self):
        for process in (self.daemon, self.prometheus):
            process.terminate()
            process.wait(PATIENCE_SECONDS)

    def ask(self, path, **words):
        """Prometheus' answer to a request of its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]

    def series(self, expression):
        return self.ask("query", query=expression)["result"]

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def refusal_fires(self):
        return any(alert["labels"]["alertname"] == REFUSED and alert["state"] == "firing"
                   for alert in self.ask("alerts")["alerts"])


@pytest.fixture(scope="module")
def starting(tmp_path_factory, examples):
    machine = MonitoredDaemon(tmp_path_factory.mktemp("metrics"), examples / "simulated")
    try:
        yield machine
    finally:
        machine.end()
        print(machine.log.read_text(errors="replace")[-4000:])


@pytest.fixture(scope="module")
def machine(starting):
    """Slices are offline, and Prometheus has samples enough for rates."""
    until("offline slices", lambda: starting.series('ramslice_slices{state="offline"} > 0'))
    until("rates", lambda: starting.series("rate(ramslice_switched_off_slices_total[1m])"))
    return starting


@pytest.mark.parametrize("words", [["check", "rules", RULES], ["test", "rules", RULE_TESTS]],
                         ids=["check", "test"])
def test_promtool_accepts_the_rules(words):
    subprocess.run(["promtool", *words], check=True)


def scraped(machine, accept):
    """(content type, text) of the metrics of a daemon that has switched something off."""
    request = urllib.request.Request(f"http://127.0.0.1:{machine.metrics_port}/metrics",
                                     headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_promtool_accepts_what_older_scrapers_get(machine):
    kind, text = scraped(machine, "text/plain;version=0.0.4")
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_both_formats_have_the_same_samples(machine):
    (classic_kind, classic), (kind, open_metrics) = (
        scraped(machine, accept) for accept in ("*/*", "application/openmetrics-text"))
    assert classic_kind.startswith("text/plain") and kind.startswith("application/openmetrics-text")

    def names(text):
        return {line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")}

    assert names(classic) == names(open_metrics)


def test_prometheus_scrapes_the_daemon(starting):
    until("the target", lambda: any(target["health"] == "up"
                                    for target in starting.ask("targets")["activeTargets"]))


def test_prometheus_sees_offline_slices(machine):
    assert float(machine.series('ramslice_slices{state="offline"}')[0]["value"][1]) > 0


@pytest.mark.parametrize("expression", dashboard_expressions())
def test_an_expression_of_the_dashboard_has_series(machine, expression):
    found = machine.series(expression)
    assert found or any(word in expression for word in MAY_BE_EMPTY)


def test_a_metric_that_does_not_exist_has_no_series(machine):
    assert machine.series("ramslice_no_such_metric") == []


def test_all_rules_can_be_evaluated(machine):
    def evaluated():
        rules = machine.rules()
        return rules and all(rule["health"] != "unknown" for rule in rules) and rules

    rules = until("the rules' first evaluation", evaluated)
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []


def test_no_rule_fires_on_a_healthy_machine(machine):
    rules = machine.rules()
    assert rules
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_the_first_refusal_of_settings_raises_an_alert(machine):
    text = machine.settings.read_text()
    machine.settings.write_text(text.replace('"on"', '"onn"', 1))
    machine.daemon.send_signal(signal.SIGHUP)
    until(REFUSED, machine.refusal_fires)
