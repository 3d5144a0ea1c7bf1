# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at pages in headless Chromium: on a screen and on a phone, light and dark.

A page has a problem for anything on the console, for any request, for content wider than the
window, for text that is too small or cut off, for a figure without a drawing, and if its button
does not change the theme.
"""

import contextlib
import shutil
from dataclasses import dataclass

from playwright.sync_api import sync_playwright

WIDTHS = (1280, 390)
THEMES = ("light", "dark")
HEIGHT = 844
# Pixels, as drawn: smaller text is hard to read.
LEAST_TEXT = 10
# What a page does late shows in this time.
SETTLE_MS = 200
TIMEOUT_MS = 120_000

MEASURE = """
(() => {
  const shown = (element) =>
    element.getClientRects().length > 0 && element.getBoundingClientRect().width > 0;
  const texts = [...document.querySelectorAll("svg text")].filter(shown);
  const scale = (text) => Math.hypot(text.getCTM().a, text.getCTM().b);
  const size = (text) => parseFloat(getComputedStyle(text).fontSize) * scale(text);
  const cut = texts.filter((text) => {
    const inner = text.getBoundingClientRect();
    const outer = text.ownerSVGElement.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1;
  });
  return {
    width: document.documentElement.scrollWidth, window: window.innerWidth,
    drawings: [...document.querySelectorAll("svg")].filter(shown).length,
    figures: document.querySelectorAll("figure").length,
    missing: document.querySelectorAll(".missing").length,
    smallest: Math.min(...texts.map(size), 99), cut: cut.map((text) => text.textContent),
    paper: getComputedStyle(document.body).backgroundColor,
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


@dataclass
class PageView:
    """What a page is like at one width and theme."""

    problems: list
    paper: str


@contextlib.contextmanager
def chromium():
    """A browser for view_page()."""
    program = shutil.which("chromium")
    if not program:
        raise FileNotFoundError("chromium is missing: lab/setup installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, timeout=TIMEOUT_MS,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


def view_page(browser, page, width, theme, shots=None):
    """Opens a page, a file, as a PageView. A picture of it goes into the folder `shots`."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT}, device_scale_factor=1,
        is_mobile=width < 700, color_scheme=theme)
    context.set_default_timeout(TIMEOUT_MS)
    try:
        tab = context.new_page()
        address, events = page.resolve().as_uri(), []
        tab.on("console", lambda message: events.append(f"console.{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: events.append(f"error: {error.name}: {error.message}"))
        tab.on("request", lambda request: events.append(f"request: {request.url}"))
        tab.goto(address)
        found = tab.evaluate(MEASURE)
        problems = list(_problems(found, width))
        if not tab.evaluate(TOGGLE):
            problems.append("the button does not change the theme")
        if shots:
            shots.mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=shots / f"{page.stem}-{width}-{theme}.png", full_page=True)
        tab.wait_for_timeout(SETTLE_MS)
        own = (f"request: {address}", "request: data:")
        problems += [event for event in events if not event.startswith(own)]
        return PageView(problems, found["paper"])
    finally:
        context.close()


def _problems(found, width):
    if found["width"] > found["window"] or found["window"] > width:
        yield f"content is {found['width']} pixels wide in a window of {width}"
    if found["drawings"] + found["missing"] != found["figures"] or not found["figures"]:
        yield (f"{found['figures']} figures, but {found['drawings']} drawings"
               f" and {found['missing']} notes")
    if found["smallest"] < LEAST_TEXT:
        yield f"text of {found['smallest']:.1f} pixels"
    for text in found["cut"]:
        yield f"text runs out of its drawing: {text}"
