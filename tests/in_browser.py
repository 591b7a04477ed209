"""A real browser without a window. ``make test-docs`` installs what is needed; without it, these tests are skipped."""

import json
import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "docs" / "_build"


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
    """``look(path, width, dark)`` opens a page. Returns the driver."""

    def look(path, width=1200, dark=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}]  # nothing is clicked while it moves
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.get_log("browser")
        chromium.get(Path(path).as_uri())
        return chromium

    return look


@pytest.fixture
def errors(chromium):
    """``errors()`` returns what the page has written to the console as warnings and errors."""

    def errors():
        return [json.dumps(entry) for entry in chromium.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    return errors
