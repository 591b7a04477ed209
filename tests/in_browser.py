"""A real browser without a window.

``make test-docs`` installs what is needed; without it, these tests are skipped.
"""

import base64
import json
import os
import shutil
import time
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "docs" / "_build"
LOOK = "PLAYGROUND_SCREENSHOTS"  # set it to a folder, to look at the pages yourself
PATIENCE = 300  # seconds, for what takes a few, on a machine that has much else to do
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 20, 20)"}
WIDTHS = "[innerWidth, document.documentElement.scrollWidth, document.body.scrollWidth]"


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    return SITE


@pytest.fixture(scope="module")
def chromium():
    """A driver of Chromium that keeps what is written to the console, and has no network.

    Each test file has a new one: after hundreds of pages, one has stopped answering.
    """
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
    browser.set_page_load_timeout(PATIENCE)
    browser.set_script_timeout(PATIENCE + 5)
    yield browser
    browser.quit()


@pytest.fixture
def look(chromium):
    """``look(path, width, dark, address)`` opens a page, with what follows # in its address.

    In the end, it may have written no error to the console that the test has not asked for.
    """
    page = Page(chromium)
    yield page.open
    assert page.errors() == []


@pytest.fixture(scope="module")
def path(request, tmp_path_factory):
    """The page with the name ``PAGE`` of the test file, put together into one file."""
    from scripts import make_playground

    path = tmp_path_factory.mktemp("page") / request.module.PAGE
    path.write_text(make_playground.page(path.name), encoding="utf-8")
    return path


class Page:
    """A page in the browser, as a person sees and uses it. Selectors are those of CSS."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, width=1200, theme="light", address=""):
        self.leave()
        self.prefer(theme)
        self.resize(width)
        url = Path(path).as_uri()
        self.driver.get(f"{url}#{address}" if address else url)
        # on a busy machine it may return before all scripts have run
        self.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")
        return self

    def leave(self):
        """Close the page, and forget what it has written to the console.

        From a page to itself, only the part after # would change.
        """
        self.driver.get("about:blank")
        self.errors()

    def prefer(self, theme):
        """Change the theme that the reader prefers; nothing moves when it is to be clicked."""
        scheme = {"name": "prefers-color-scheme", "value": theme}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme, still])

    def resize(self, width, height=900):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def cdp(self, command, **parameters):
        """The answer to a command of the Chrome DevTools Protocol."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def js(self, script, *arguments):
        """What a script returns, which sees its arguments as ``arguments``."""
        return self.driver.execute_script(script, *arguments)

    def errors(self):
        """What was written to the console as warnings and errors since the last call."""
        log = self.driver.get_log("browser")
        return [json.dumps(entry) for entry in log if entry["level"] in ("WARNING", "SEVERE")]

    def address(self):
        """What follows # in the address."""
        return self.js("return location.hash.slice(1)")

    def follow(self, address):
        """Change what follows # in the address, as a link in the page does."""
        script = """const [address, done] = arguments;
        addEventListener("hashchange", () => done(), { once: true });
        location.hash = address;"""
        self.driver.execute_async_script(script, address)

    # -- what it shows

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector):
        return self.find(selector).text

    def texts(self, selector):
        """The texts of all elements, at one moment, as `text` gives that of one."""
        script = """return [...document.querySelectorAll(arguments[0])]
          .map((x) => x.innerText.replaceAll("\\u00a0", " ").trim())"""
        return self.js(script, selector)

    def value(self, selector):
        """What stands in a field."""
        return self.find(selector).get_attribute("value")

    def overflows(self, selector):
        """For each element, how much wider its content is than itself."""
        script = """return [...document.querySelectorAll(arguments[0])]
          .map((x) => x.scrollWidth - x.clientWidth)"""
        return self.js(script, selector)

    def says(self, words):
        """Compare texts: for each selector, words that are in the text of its element."""
        for selector, part in words.items():
            assert part in self.text(selector)

    def shows(self, selector):
        return self.find(selector).is_displayed()

    def focused(self):
        """The id of the element that has the focus."""
        return self.js("return document.activeElement.id")

    # -- what a person does

    def click(self, selector):
        self.find(selector).click()

    def press(self, *keys):
        from selenium import webdriver

        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector):
        """Press Tab until the element has the focus."""
        from selenium.webdriver.common.keys import Keys

        for _ in range(300):
            if self.js("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"Tab does not come to {selector}")

    def by_keyboard(self, rows):
        """Use the page without a mouse. A row of the table has the element to which Tab is pressed,
        or nothing, the keys, an expression of JavaScript, and what it is then.
        """
        for selector, keys, expression, expected in rows:
            if selector:
                self.tab_to(selector)
            if keys:
                self.press(*keys)
            assert self.js(f"return {expression}") == expected, (selector, keys)

    def replace(self, selector, *keys):
        """Type in the place of what is in a field."""
        from selenium.webdriver.common.keys import Keys

        field = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(*keys)

    def fill(self, selector, text):
        """Write a text in the place of another one, and leave the field."""
        script = """
            const [selector, text] = arguments, field = document.querySelector(selector);
            field.value = text;
            for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind));
        """
        self.js(script, selector, text)

    def wait_for(self, condition):
        """Wait until an expression of JavaScript is true.

        It stands in the script itself: where scripts are blocked, a timer may not call ``eval``.
        """
        script = f"""const [ms, done] = arguments, end = Date.now() + ms;
        (function look() {{
          ({condition}) ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 30);
        }})();"""
        assert self.driver.execute_async_script(script, 1000 * PATIENCE), condition

    def wait_for_error(self, words):
        """Wait until an error with these words is written to the console."""
        end = time.monotonic() + PATIENCE
        while not any(words in error for error in self.errors()):
            assert time.monotonic() < end, words
            time.sleep(0.03)

    # -- what holds for every page

    def check_screens(self, width, name):
        """It fits into the width, something is drawn, and in both themes every text has contrast.

        Keep pictures of it if they are wanted.
        """
        folder = os.environ.get(LOOK)
        for theme, background in BACKGROUNDS.items():
            self.prefer(theme)
            assert self.fits(width)
            assert self.js(CONTRAST) == []
            assert self.js("return getComputedStyle(document.body).backgroundColor") == background
            if folder:
                file = f"{self.driver.title}-{name}-{width}-{theme}.png"
                (Path(folder) / file).write_bytes(self.picture_of_all())
        assert len(self.driver.get_screenshot_as_png()) > 10_000

    def fits(self, width):
        """Whether it is laid out for a screen of this width, and not wider."""
        screen, *widths = self.js(f"return {WIDTHS}")
        return screen == width and max(widths) <= width

    def picture_of_all(self):
        """A picture of the whole page, also of what one would scroll to, which takes longer."""
        clip = self.cdp("Page.getLayoutMetrics")["cssContentSize"] | {"scale": 1}
        picture = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(picture["data"])

    def check_names(self, at_least):
        """Whatever can have the focus has a name, more than ``at_least`` elements."""
        n_focusable = 0
        for node in self.cdp("Accessibility.getFullAXTree")["nodes"]:
            role, properties = node["role"]["value"], node.get("properties", [])
            can_have_focus = any(each["name"] == "focusable" for each in properties)
            if not can_have_focus or node.get("ignored") or role == "RootWebArea":
                continue
            n_focusable += 1
            name = node.get("name", {}).get("value", "")
            assert name.strip() or role in ("generic", "none"), role
        assert n_focusable > at_least

    def check_links(self, selector, folder):
        """Two links are there, each to a file of the folder."""
        links = "[...document.querySelectorAll(arguments[0])].map(a => a.getAttribute('href'))"
        one, other = self.js(f"return {links}", selector)
        assert (folder / one).is_file() and (folder / other).is_file()


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
