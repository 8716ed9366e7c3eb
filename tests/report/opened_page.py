"""A page of a report in headless Chromium, opened as a file."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

OPENED = "() => performance.getEntriesByName('loaded').length > 0"


def opened_data(text: str) -> dict[str, Any]:
    """Return what a page has for what is opened in it, from the text of its file."""
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    opened: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data["opened"])))
    return opened


def with_opened_data(text: str, opened: dict[str, Any]) -> str:
    """Return the text of a page with other data for what is opened in it."""
    packed = base64.b64encode(gzip.compress(json.dumps(opened).encode())).decode()
    head, _, rest = text.partition('"opened":"')
    return f'{head}"opened":"{packed}"{rest.partition(chr(34))[2]}'


def until(page: Any, condition: str) -> None:
    """Wait for a condition; a policy without eval does not let playwright do it."""
    for _ in range(1500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(condition)


class Opened:
    """A page of a report, opened until both readers show a rollout."""

    def __init__(self, browser: Any, address: str, *, width: int = 1280) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message) or dialog.dismiss())
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.until(OPENED)

    def until(self, condition: str) -> None:
        until(self.page, condition)

    def opens(self, number: int) -> None:
        """Wait until the list's reader shows a rollout."""
        self.until(f"() => document.getElementById('which').textContent === 'Rollout {number}'")

    def go(self, address: str) -> None:
        """Follow a link inside the page."""
        self.page.evaluate("(address) => { location.hash = address; }", address)

    def pinned(self, reader: str = "panel") -> int:
        return int(self.page.locator(f"#{reader} .k.on").get_attribute("data-at"))

    def token(self, position: int, reader: str = "panel") -> Any:
        return self.page.locator(f"#{reader} [data-at='{position}']")

    def colour(self, position: int, reader: str = "panel") -> str:
        return str(self.token(position, reader).evaluate("e => getComputedStyle(e).backgroundColor"))

    def text(self, selector: str) -> str:
        """Return a text in one line, without the marks that keep parts of it in their direction."""
        text = self.page.locator(selector).inner_text().replace("\u2068", "").replace("\u2069", "")
        return " ".join(text.split())

    def close(self, address: str) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith("data:")] == [address.split("#")[0]]
        self.page.close()
