#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Prometheus scrapes ramsliced on a simulated machine, and evaluates the dashboard's and the rules' expressions.

Usage: lab/ramlab/checks/metrics.py SIMULATED, the daemon's example of that name.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from ramlab.common import ROOT, die

PATIENCE = 120
RULES = ROOT / "packaging/prometheus/ramslice.rules.yml"
DASHBOARD = ROOT / "packaging/grafana/ramslice.json"
# What Grafana fills in.
VARIABLES = {"$instance": "machine", "$__rate_interval": "1m"}
# What there is only after something went wrong.
MAY_BE_EMPTY = ("ramslice_failed_slices_total", "ramslice_backend_errors_total", "quarantined")
REFUSED = "RamsliceSettingsRefused"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def ask(port, path, **words):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}") as answer:
        return json.load(answer)["data"]


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    return die(f"waited in vain for {what}")


def expressions():
    """Those of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def main():
    if len(sys.argv) != 2:
        die("usage: lab/ramlab/checks/metrics.py SIMULATED")
    metrics, prometheus = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(
            'schema_version = 1\nmode = "on"\nperiod_seconds = 0.1\n[energy]\ngranularity = "slice"\ntime_factor = "1"\n'
            f'[metrics]\nlisten = "127.0.0.1:{metrics}"\n'
        )
        (folder / "p.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "ramslice", "static_configs": [
                {"targets": [f"127.0.0.1:{metrics}"], "labels": {"instance": "machine"}}]}],
        }))
        log = (folder / "log").open("wb")
        processes = [subprocess.Popen(line, stdout=log, stderr=log) for line in (
            [sys.argv[1], "--config", folder / "c.toml", "--dir", folder, "--slices", "64", "--speed", "300"],
            ["prometheus", f"--config.file={folder}/p.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{prometheus}"],
        )]
        try:
            check(prometheus)
            check_refusal(prometheus, folder / "c.toml", processes[0])
        except BaseException:
            print((folder / "log").read_text(errors="replace")[-4000:])
            raise
        finally:
            for process in processes:
                process.terminate()
                process.wait(PATIENCE)
            log.close()
    return 0


def check(port):
    target = until("the target", lambda: next((t for t in ask(port, "targets")["activeTargets"] if t["health"] == "up"), None))
    print(f"target {target['labels']['instance']} is {target['health']}")

    def value(expression):
        return ask(port, "query", query=expression)["result"]

    off = until("slices off", lambda: value('ramslice_slices{state="offline"} > 0'))
    print(f"{off[0]['value'][1]} slices are off")
    # Rates need a few samples.
    until("rates", lambda: value("rate(ramslice_switched_off_slices_total[1m])"))
    broken = []
    for title, expression in expressions():
        if not value(expression) and not any(word in expression for word in MAY_BE_EMPTY):
            broken.append(f"{title}: {expression}")
    if broken:
        die("no series for\n" + "\n".join(broken))
    if value("ramslice_no_such_metric"):
        die("Prometheus finds what is not there")
    print(f"all {len(list(expressions()))} expressions of the dashboard have series, or nothing to tell of")
    rules = [rule for group in ask(port, "rules")["groups"] for rule in group["rules"]]
    sick = [rule["name"] for rule in rules if rule["health"] == "err" or rule["state"] == "firing"]
    if sick or not rules:
        die(f"of {len(rules)} rules these fail, or fire on a machine that is well: {sick}")
    names = ask(port, "label/__name__/values")
    own = [name for name in names if re.match("ramslice_", name)]
    print(f"{len(rules)} rules are well; {len(own)} metrics")


def check_refusal(port, config, daemon):
    """The first refusal of settings is told, too."""
    config.write_text(config.read_text().replace('"on"', '"onn"', 1))
    daemon.send_signal(signal.SIGHUP)

    def fires():
        alerts = ask(port, "alerts")["alerts"]
        return any(alert["labels"]["alertname"] == REFUSED and alert["state"] == "firing" for alert in alerts)

    until(REFUSED, fires)
    print(f"{REFUSED} fires at the first refusal")


if __name__ == "__main__":
    sys.exit(main())
