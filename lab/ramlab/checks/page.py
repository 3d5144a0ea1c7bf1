#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at pages in headless Chromium: on a screen and on a telephone, light and dark.

A page is refused for anything on the console, for any request, for content wider than the window, for text too small
to read, for figures that overlap nothing but are not there, and if its button does not change the theme. Prints what is
wrong, a line each; the exit status is 1 if anything is. --shots keeps a picture of each look.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTHS = (1280, 390)
THEMES = ("light", "dark")
# What is smaller than this, in pixels as drawn, nobody reads
LEAST_TEXT = 10
TIMEOUT_S = 60

MEASURE = """
(() => {
  const shown = (element) => element.getClientRects().length > 0 && element.getBoundingClientRect().width > 0;
  const texts = [...document.querySelectorAll("svg text")].filter(shown);
  const scale = (text) => Math.hypot(text.getCTM().a, text.getCTM().b);
  const size = (text) => parseFloat(getComputedStyle(text).fontSize) * scale(text);
  const cut = texts.filter((text) => {
    const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1;
  });
  return {
    width: document.documentElement.scrollWidth, window: window.innerWidth,
    drawings: [...document.querySelectorAll("svg")].filter(shown).length,
    figures: document.querySelectorAll("figure").length, missing: document.querySelectorAll(".missing").length,
    smallest: Math.min(...texts.map(size), 99), cut: cut.map((text) => text.textContent),
    paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  };
})()
"""
TOGGLE = """
(() => {
  const paper = () => getComputedStyle(document.body).backgroundColor;
  const before = paper(), button = document.querySelector("button");
  if (!button || button.hidden) return false;
  button.click();
  const other = paper();
  button.click();
  return other !== before && paper() === before;
})()
"""


class Chromium:
    """A browser, spoken to over a pair of pipes."""

    def __init__(self, home):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def wire():
            # Moved out of the way first: a pipe may have these numbers itself.
            ours = os.dup(to_read), os.dup(from_write)
            while ours[0] < 5 or ours[1] < 5:
                ours = os.dup(ours[0]), os.dup(ours[1])
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--disable-background-networking", "--disable-component-update", "--no-first-run",
                   "--disable-dev-shm-usage", f"--user-data-dir={home}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(3, 4), preexec_fn=wire, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer, self.number, self.events = b"", 0, []

    def close(self):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        os.close(self.to_write)
        os.close(self.from_read)

    def message(self):
        while b"\0" not in self.buffer:
            data = os.read(self.from_read, 1 << 20)
            if not data:
                sys.exit("check_page: Chromium has ended; does `chromium --headless` run here?")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        """Calls a method of the DevTools protocol; events that come meanwhile are kept."""
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if session:
            order["sessionId"] = session
        os.write(self.to_write, json.dumps(order).encode() + b"\0")
        while True:
            found = self.message()
            if found.get("id") == self.number:
                if "error" in found:
                    sys.exit(f"check_page: {method}: {found['error']['message']}")
                return found["result"]
            if "method" in found:
                self.events.append(found)

    def until(self, method):
        while not any(event["method"] == method for event in self.events):
            found = self.message()
            if "method" in found:
                self.events.append(found)


def faults(events, address):
    """What the browser had to say against the page."""
    for event in events:
        what = event.get("params", {})
        match event["method"]:
            case "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                yield f"error: {details.get('exception', {}).get('description', details['text'])}"
            case "Runtime.consoleAPICalled":
                words = [str(a.get("value", a.get("description"))) for a in what["args"]]
                yield f"console.{what['type']}: {' '.join(words)}"
            case "Log.entryAdded":
                yield f"{what['entry']['level']}: {what['entry']['text']}"
            case "Network.requestWillBeSent":
                url = what["request"]["url"]
                if url != address and not url.startswith("data:"):
                    yield f"request: {url}"


def look(browser, page, width, theme, shots):
    """What is wrong with a page at this width and theme, and its colour."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(method, **parameters):
        return browser.call(method, session, **parameters)

    for domain in ("Page", "Runtime", "Log", "Network"):
        call(f"{domain}.enable")
    call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 700)
    call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    browser.events.clear()
    address = page.resolve().as_uri()
    call("Page.navigate", url=address)
    browser.until("Page.loadEventFired")

    def evaluate(script):
        return call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    found = evaluate(MEASURE)
    wrong = []
    if found["width"] > found["window"] or found["window"] > width:
        wrong.append(f"content is {found['width']} pixels wide in a window of {width}")
    if found["drawings"] + found["missing"] != found["figures"] or not found["figures"]:
        wrong.append(f"{found['figures']} figures, but {found['drawings']} drawings and {found['missing']} notes")
    if found["smallest"] < LEAST_TEXT:
        wrong.append(f"text of {found['smallest']:.1f} pixels")
    wrong += [f"text runs out of its drawing: {text}" for text in found["cut"]]
    if not evaluate(TOGGLE):
        wrong.append("the button does not change the theme")
    if shots:
        whole = call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": width, "height": whole["height"], "scale": 1}
        data = call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        (shots / f"{page.stem}-{width}-{theme}.png").write_bytes(base64.b64decode(data))
    # What the page does late shows here
    evaluate("new Promise((done) => setTimeout(done, 200))")
    wrong += faults(browser.events, address)
    browser.call("Target.closeTarget", targetId=target)
    return wrong, found["paper"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--shots", type=Path, help="keep pictures there")
    args = parser.parse_args()
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    status = 0
    # The browser's helpers may still write to it when it has ended
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        browser = Chromium(home)
        try:
            for page in args.pages:
                papers = {}
                for width in WIDTHS:
                    for theme in THEMES:
                        wrong, papers[theme] = look(browser, page, width, theme, args.shots)
                        for what in wrong:
                            print(f"{page}, {width} pixels, {theme}: {what}")
                            status = 1
                if papers["light"] == papers["dark"]:
                    print(f"{page}: light and dark are the same")
                    status = 1
        finally:
            browser.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
