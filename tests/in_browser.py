"""A real browser without a window.

``make test-docs`` installs what is needed; without it, these tests are skipped.
"""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "docs" / "_build"
LOOK = "PLAYGROUND_SCREENSHOTS"  # set it to a folder, to look at the pages yourself


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    return SITE


@pytest.fixture(scope="session")
def chromium():
    """A driver of Chromium that keeps what is written to the console, and has no network."""
    webdriver = pytest.importorskip("selenium.webdriver")
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if not (driver and browser):
        pytest.skip("there is no chromium with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture
def look(chromium):
    """``look(path, width, dark, address)`` opens a page, with what follows # in its address.

    Returns the driver.
    """

    def look(path, width=1200, dark=False, address=""):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        # nothing is clicked while it moves
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.get_log("browser")
        chromium.get("about:blank")  # from a page to itself, only the part after # would change
        chromium.get(f"{Path(path).as_uri()}#{address}" if address else Path(path).as_uri())
        return chromium

    return look


@pytest.fixture
def errors(chromium):
    """``errors()`` returns what the page has written to the console as warnings and errors."""

    def errors():
        return [
            json.dumps(entry)
            for entry in chromium.get_log("browser")
            if entry["level"] in ("WARNING", "SEVERE")
        ]

    return errors


def press(browser, *keys):
    from selenium import webdriver

    webdriver.ActionChains(browser).send_keys(*keys).perform()


def tab_to(browser, selector):
    """Press Tab until the element has the focus."""
    from selenium.webdriver.common.keys import Keys

    for _ in range(300):
        if browser.execute_script("return document.activeElement.matches(arguments[0])", selector):
            return
        press(browser, Keys.TAB)
    raise AssertionError(f"Tab does not come to {selector}")


# The texts of a page whose contrast to what is behind them is too low for people with weak eyes.
CONTRAST = """
const channels = (color) => {
  const parts = color.match(/[\\d.]+/g).map(Number);
  if (color.startsWith("color(")) return parts.slice(0, 4);
  return [...parts.slice(0, 3).map((x) => x / 255), ...parts.slice(3)];
};
const light = (color) => {
  const linear = channels(color).slice(0, 3).map(
    (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if ((channels(color)[3] ?? 1) > 0) return color;
  }
};
const poor = [];
for (const node of document.querySelectorAll("body *")) {
  const has_text = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (!has_text && !node.matches("input, select, svg text")) continue;
  if (node.matches("script, option, noscript, option *")) continue;
  const style = getComputedStyle(node);
  const [a, b] = [light(node.matches("svg text") ? style.fill : style.color), light(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push([node.outerHTML.slice(0, 80), ratio]);
}
return poor;
"""


def check_screen(browser, width, theme, path, name):
    """It fits into the width, every text has contrast, and the theme is the wanted one.

    Keep a picture of it.
    """
    sizes = "return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
    page, body, screen = browser.execute_script(sizes)
    assert screen == width
    assert max(page, body) <= width
    assert browser.execute_script(CONTRAST) == []
    dark = (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        == "rgb(20, 20, 20)"
    )
    assert dark == (theme == "dark")

    height = browser.execute_script("return document.documentElement.scrollHeight")
    options = {
        "captureBeyondViewport": True,
        "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
    }
    png = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])
    (Path(os.environ.get(LOOK, path)) / f"{browser.title}-{name}-{width}-{theme}.png").write_bytes(
        png
    )
    assert len(png) > 10_000
