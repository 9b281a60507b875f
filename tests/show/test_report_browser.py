"""Reports in a real browser: no request, no message on its console, tables that sort, narrow and dark pages, print.

Skipped where Chromium, its driver or selenium is missing; ``apt-get install chromium chromium-driver`` and
``pip install selenium`` bring them.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("selenium", reason="no selenium, which drives the browser")
from plot_cases import result
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import dfopt as df
from dfopt.show.report import remarks, result_report, sweep_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its chromedriver here")
FIND = "const t = [...document.querySelectorAll('.sorts')].find(t => t.caption.textContent.startsWith(arguments[0]));"
PAGES = ("result", "stack", "sweep", "hostile")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    stacked = df.optimize(df.load_graph("gpt3-175b"), df.load_system("sn40l-8-3d"), tp=8)
    rows = [
        {
            "graph": "g", "chip": f"c{i}", "topology": f"t{k}", "status": "optimal", "step_time_s": 1.0 + i * k,
            "utilization": 0.1 * i, "flop_per_s": 1e12 * i, "price_usd": 100.0 * (i + k),
            "gap": 0.0 if k else None, "note": "SRAM is short by 12 MB in partition 3; " * 12 if k == 1 else None,
        }
        for i in range(1, 13)
        for k in range(4)
    ]  # fmt: skip
    names = ["<script>alert(1)</script>", "</svg><img src=x onerror=alert(2)>", "<style>*{display:none}</style>"]
    kernels = [{"name": name, "op": "gemm", "m": 256, "k": 256, "n": 256} for name in names]
    tensors = [{"src": a, "dst": b} for a, b in pairwise(names)]
    graph = df.Graph(name="<img src=http://127.0.0.1:9/x>", batch=8, kernels=kernels, tensors=tensors)
    made = {
        "result": result_report(result("pipeline"), remarks("systems", "sn10-8-ring")),
        "stack": result_report(stacked),
        "sweep": sweep_report("mine", rows),
        "hostile": result_report(df.optimize(graph, df.load_system("sn10-8-ring"), tp=8)),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def show(browser: Any, path: Path, width: int = 1200, scheme: str = "light", media: str = "screen") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
    browser.get(path.as_uri())
    there = "return document.readyState === 'complete' && location.href === arguments[0]"  # late on a busy machine
    WebDriverWait(browser, 60).until(lambda page: page.execute_script(there, path.as_uri()))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_and_says_nothing(browser: Any, pages: dict[str, Path], name: str) -> None:
    show(browser, pages["result"])
    browser.get_log("performance"), browser.get_log("browser")
    show(browser, pages[name])
    sent = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in sent if one["method"] == "Network.requestWillBeSent"]
    assert pages[name].as_uri() in asked  # the log works
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith("file:")] == [pages[name].as_uri()]
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [400, 320, 1200])
def test_no_page_scrolls_sideways(browser: Any, pages: dict[str, Path], name: str, width: int) -> None:
    show(browser, pages[name], width)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    outside = browser.execute_script(
        "return [...document.querySelectorAll('h1,h2,p,dd,dt,nav a,.box')].filter(e => {"
        "const r = e.getBoundingClientRect(); return r.width && (r.right > innerWidth + 1 || r.left < -1) &&"
        " !e.closest('.skip')}).map(e => e.tagName + e.textContent.slice(0, 40))"
    )
    assert outside == []


def test_a_note_that_nobody_sees_makes_no_row_high(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["sweep"])
    tallest = "return Math.max(...[...document.querySelectorAll('#cells tbody tr')].map(r => r.offsetHeight))"
    assert browser.execute_script(tallest) < 60


@pytest.mark.parametrize("width", [400, 700])
def test_figures_shrink_with_their_window(browser: Any, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["sweep"], width)
    wide = browser.execute_script("return [...document.querySelectorAll('svg')].map(e => e.clientWidth)")
    assert [one > 0 for one in wide] == [width > 640, width <= 640] * 2  # the figure for a desk, or for a phone
    assert all(one <= width for one in wide)


def column(browser: Any, caption: str, header: str) -> list[str]:
    return browser.execute_script(
        FIND +
        "const i = [...t.tHead.rows[0].cells].findIndex(c => c.textContent === arguments[1]);"
        "return [...t.tBodies[0].rows].map(r => r.cells[i].dataset.v ?? r.cells[i].textContent)",
        caption, header,
    )  # fmt: skip


def button(browser: Any, caption: str, header: str) -> Any:
    return browser.execute_script(
        FIND +
        "return [...t.tHead.rows[0].cells].find(c => c.textContent === arguments[1]).querySelector('button')",
        caption, header,
    )  # fmt: skip


def state(browser: Any, one: Any) -> str | None:
    return browser.execute_script("return arguments[0].closest('th').getAttribute('aria-sort')", one)


def test_tables_sort_by_click_and_by_key(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["sweep"])
    before = column(browser, "Every cell", "price_usd")
    price = button(browser, "Every cell", "price_usd")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", price)
    price.click()
    numbers = [float(one) for one in column(browser, "Every cell", "price_usd")]
    assert numbers == sorted(map(float, before)) and numbers != [float(one) for one in before]
    assert state(browser, price) == "ascending"
    browser.execute_script("arguments[0].focus()", price)
    price.send_keys(Keys.ENTER)
    assert [float(one) for one in column(browser, "Every cell", "price_usd")] == numbers[::-1]
    assert state(browser, price) == "descending"
    chip = button(browser, "Every cell", "chip")
    browser.execute_script("arguments[0].focus()", chip)
    chip.send_keys(Keys.SPACE)
    names = column(browser, "Every cell", "chip")
    assert names == sorted(names, key=lambda one: int(one[1:]))  # c2 before c10
    assert (state(browser, chip), state(browser, price)) == ("ascending", None)


def test_what_is_missing_comes_last_either_way(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["sweep"])
    gap = button(browser, "Every cell", "gap")
    for _ in range(2):
        browser.execute_script("arguments[0].click()", gap)
        values = column(browser, "Every cell", "gap")
        assert values[-12:] == ["-"] * 12 and "-" not in values[:-12]


def test_tab_reaches_every_header_and_shows_where_it_is(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["sweep"])
    body = browser.find_element("tag name", "body")
    seen: list[str] = []
    for _ in range(40):
        (browser.switch_to.active_element if seen else body).send_keys(Keys.TAB)
        one = browser.switch_to.active_element
        seen.append(f"{one.tag_name}:{one.text}")
        if one.tag_name == "button":
            assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", one) == "solid"
    assert seen[0].startswith("a:Skip to the content")
    heads = browser.execute_script("return [...document.querySelectorAll('table.sorts')][0].tHead.textContent.length")
    assert heads and sum(one.startswith("button:") for one in seen) >= 9


def colours(browser: Any, path: str) -> list[tuple[float, float]]:
    """Luminance of letters and of the page, of each element."""
    found = browser.execute_script(
        "const lum = c => { const v = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map(x => { x /= 255;"
        " return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4 });"
        " return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };"
        "const page = lum(getComputedStyle(document.body).backgroundColor);"
        "return [...document.querySelectorAll(arguments[0])].map(e => [lum(getComputedStyle(e).color), page])",
        path,
    )
    return [(one[0], one[1]) for one in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_read_in_the_light_and_in_the_dark(browser: Any, pages: dict[str, Path], scheme: str) -> None:
    show(browser, pages["stack"], scheme=scheme)
    pairs = colours(browser, "h1,h2,h3,p,dt,dd,th,td,a,figcaption,.mark,caption,footer p")
    assert len(pairs) > 100
    assert all((page > 0.5) == (scheme == "light") for _, page in pairs)
    # contrast of WCAG 2.1, 1.4.3: 4.5 for text
    assert min((max(pair) + 0.05) / (min(pair) + 0.05) for pair in pairs) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_letters_of_figures_differ_from_the_page(browser: Any, pages: dict[str, Path], scheme: str) -> None:
    """Of what is really drawn: figures are turned round in the dark by a filter, which no computed style shows."""
    image = pytest.importorskip("PIL.Image", reason="no Pillow, which reads the screenshot")
    show(browser, pages["result"], scheme=scheme)
    box = browser.execute_script(
        "const r = [...document.querySelectorAll('figure svg text')].find(t => t.textContent.startsWith('time of'))"
        ".getBoundingClientRect();"
        "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height, scale: 2}"
    )
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": box, "captureBeyondViewport": True})
    shades = sorted(image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("L").tobytes())
    ground = max(set(shades), key=shades.count)
    if scheme == "light":
        assert ground > 250 and shades[0] < 60  # dark letters, nothing above the page
    else:
        assert ground < 30 and shades[-1] > 200 and shades[0] > ground - 10  # light letters, nothing below


def test_paper_shows_all_of_it_in_the_light(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["stack"], width=720, scheme="dark", media="print")
    assert colours(browser, "body")[0][1] > 0.9
    hidden = browser.execute_script(
        "return [...document.querySelectorAll('.box')].filter(e => e.scrollHeight > e.clientHeight + 1 &&"
        " getComputedStyle(e).overflowY !== 'visible').length"
    )
    assert hidden == 0
    assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.execute_script("return getComputedStyle(document.querySelector('.plain svg')).filter") == "none"
    made = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert made.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", made)) > 3


def test_the_page_is_whole_without_its_script(browser: Any, pages: dict[str, Path]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, pages["sweep"])
        assert browser.find_elements("css selector", "th button") == []
        assert len(browser.find_elements("css selector", "tbody tr")) > 48
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
