"""A headless Chromium, and pages of a finished run for it to open from disk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.browser.finished import make_run

WIDE, PHONE = (1280, 1000), (390, 844)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_run(folder)
    return folder / "results"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    browser, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with its driver (Debian: chromium chromium-driver)")
    options = ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


class Page:
    """One page in the browser, opened from disk."""

    def __init__(self, chrome: Chrome, path: Path, size: tuple[int, int] = WIDE) -> None:
        self.chrome = chrome
        self.path = path
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.requested()  # what an earlier page asked for
        chrome.get(path.as_uri())

    def run(self, script: str, *arguments: object) -> object:
        return self.chrome.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        """The text of every element that is shown."""
        found = self.run(
            "return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent || e.closest('svg'))"
            ".map((e) => (e.innerText ?? e.textContent).trim())",
            selector,
        )
        assert isinstance(found, list)
        return [str(text) for text in found]

    def type(self, selector: str, text: str) -> None:
        """Put `text` into a field, a list or a check box as a person would."""
        self.run(
            "const e = document.querySelector(arguments[0]);"
            "if (e.type === 'checkbox') e.click(); else { e.value = arguments[1];"
            "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); }",
            selector,
            text,
        )

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def errors(self) -> list[str]:
        return [str(entry["message"]) for entry in self.chrome.get_log("browser") if entry["level"] == "SEVERE"]

    def requested(self) -> list[str]:
        """The addresses asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.chrome.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]
