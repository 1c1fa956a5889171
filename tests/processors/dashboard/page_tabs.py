"""Tabs of a browser that show the page, and what the page says of itself there."""

from typing import Literal
from urllib.parse import parse_qs

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, ViewportSize

PATIENCE_MS = 10_000
_WATCH = """
window.breaches = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.breaches.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? false });
window.hide = (is) => {
  window.isHidden = is;
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
"""A browser without a window hides no page by itself: `hide` says that it did."""
CHARTS = (
    "heat",
    "queue",
    "consumed-lag",
    "admission",
    "refusals",
    "failures",
    "drift",
    "drift-floor",
    "throughput",
    "took",
    "updates",
)
"""By the names of their cards."""
LAPTOP = ViewportSize(width=1440, height=900)
PHONE = ViewportSize(width=360, height=740)


class Spare:
    """A tab that is kept from test to test, since to begin a process for each costs more than all that it shows."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None
        self._is_lent = False

    def lend(self, size: ViewportSize, scheme: Literal["light", "dark"]) -> Page | None:
        """None: it is in use."""
        if self._is_lent:
            return None
        self._is_lent = True
        if self._page is None:
            self._page = new_context(self._browser, size, scheme).new_page()
        self._page.set_viewport_size(size)
        self._page.emulate_media(color_scheme=scheme)
        return self._page

    def take_back(self) -> None:
        """It shows nothing any more."""
        assert self._page is not None
        self._page.goto("about:blank")
        self._is_lent = False


def new_context(browser: Browser, size: ViewportSize, scheme: Literal["light", "dark"]) -> BrowserContext:
    context = browser.new_context(viewport=size, color_scheme=scheme, timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_WATCH)
    return context


class Tabs:
    """Opens tabs and collects what they complain about."""

    def __init__(self, browser: Browser, url: str, spare: Spare | None = None) -> None:
        self.url = url
        self.awaited: tuple[str, ...] = ()
        """Parts of complaints that a test expects: a server that is stopped is noted by the browser."""
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []
        self._spare = spare
        self._lent: Page | None = None

    def open(
        self,
        address: str = "",
        *,
        size: ViewportSize = LAPTOP,
        scheme: Literal["light", "dark"] = "light",
        clock: bool = False,
        hidden: bool = False,
        without: str = "",
        beside: Page | None = None,
    ) -> Page:
        """A tab in a browser of its own, or `beside` another one. `clock`: the test may move the time; `hidden`: it is
        opened in the background; `without`: what cannot be loaded."""
        plain = not (clock or hidden or without or beside)
        page = (plain and self._borrowed(size, scheme)) or self._new(size, scheme, beside)
        if hidden:
            page.add_init_script("window.isHidden = true;")
        if without:
            page.route(without, lambda route: route.abort())
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("dialog", self._asked)
        if clock:
            page.clock.install()
        page.goto(self.url + address)
        return page

    def _borrowed(self, size: ViewportSize, scheme: Literal["light", "dark"]) -> Page | None:
        page = None if self._spare is None else self._spare.lend(size, scheme)
        self._lent = page or self._lent
        return page

    def _new(self, size: ViewportSize, scheme: Literal["light", "dark"], beside: Page | None) -> Page:
        if beside is not None:
            return beside.context.new_page()
        self._contexts.append(new_context(self._browser, size, scheme))
        return self._contexts[-1].new_page()

    def close(self) -> list[str]:
        """Closes all; what they complained about."""
        for context in self._contexts:
            for page in context.pages:
                self._breaches(page)
            context.close()
        if self._lent is not None and self._spare is not None:
            self._breaches(self._lent)
            self._spare.take_back()
            self._lent.remove_listener("console", self._said)
            self._lent.remove_listener("pageerror", self._failed)
            self._lent.remove_listener("dialog", self._asked)
        return [said for said in self._complaints if not any(part in said for part in self.awaited)]

    def _breaches(self, page: Page) -> None:
        self._complaints += [f"policy: {breach}" for breach in page.evaluate("window.breaches ?? []")]

    def _failed(self, error: Error) -> None:
        self._complaints.append(str(error))

    def _asked(self, dialog: Dialog) -> None:
        self._complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"{message.type}: {message.text}")


def address(page: Page) -> dict[str, str]:
    """What the page's address says."""
    said = parse_qs(str(page.evaluate("location.hash")).removeprefix("#"))
    return {name: values[0] for name, values in said.items()}


def figure(page: Page, name: str) -> str:
    """The exact value of a figure, as it stands beside its text."""
    return page.locator(f'[data-figure="{name}"]').first.get_attribute("data-value") or ""


def wait_for_figure(page: Page, name: str, value: object) -> None:
    page.wait_for_selector(f'[data-figure="{name}"][data-value="{value}"]', state="attached")


def wait_for_figures(page: Page) -> None:
    """Until the run's figures are there and a chart is drawn."""
    page.wait_for_selector("body[data-view=figures] [data-card=heat]")
    page.locator("[data-card=heat]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-card=heat] canvas")


def hide(page: Page, hidden: bool = True) -> str:
    """The browser hides the page, or shows it again; how the page stands then."""
    standing: str = page.evaluate("(is) => { hide(is); return document.body.dataset.standing; }", hidden)
    return standing


def width_left(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider
