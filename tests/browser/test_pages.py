"""The pages as a person meets them: in a real browser, from disk, without a network."""

from pathlib import Path

import axe_core_python
import pytest
from selenium.webdriver import Chrome

from tests.browser.conftest import PHONE, WIDE, Page
from tests.browser.finished import EXPRESSIONS, HOSTILE

AXE = Path(axe_core_python.__file__).parent / "axe.min.js"

INDEX = "index.html"
GALLERY = "gallery/pixels/refcoco/val.html"
PAGES = [INDEX, "gallery/index.html", GALLERY]


@pytest.fixture
def index(chrome: Chrome, results: Path) -> Page:
    return Page(chrome, results / INDEX)


@pytest.fixture
def gallery(chrome: Chrome, results: Path) -> Page:
    return Page(chrome, results / GALLERY)


def column(page: Page, table: str, place: int) -> list[str]:
    return page.texts(f"#{table} tbody tr > :nth-child({place})")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_disk_without_errors_or_network(chrome: Chrome, results: Path, name: str):
    page = Page(chrome, results / name)
    assert page.errors() == []
    assert [url for url in page.requested() if not url.startswith("file://")] == []


def test_the_page_of_tables_is_one_file(index: Page):
    assert index.requested() == [index.path.as_uri()]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(chrome: Chrome, results: Path, name: str):
    page = Page(chrome, results / name, PHONE)
    assert page.run("return document.documentElement.scrollWidth") == PHONE[0]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_accessible(chrome: Chrome, results: Path, name: str, size: tuple[int, int], scheme: str):
    scheme_feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme_feature)
    page = Page(chrome, results / name, size)
    page.run(AXE.read_text(encoding="utf-8"))
    found = chrome.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [f"{fault['id']}: {fault['nodes'][0]['html'][:200]}" for fault in found["violations"]] == []


@pytest.mark.parametrize("name", [INDEX, GALLERY])
def test_texts_stay_texts(chrome: Chrome, results: Path, name: str):
    page = Page(chrome, results / name)
    if name == INDEX:
        page.run("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
    assert HOSTILE in str(page.run("return document.body.innerText"))
    assert page.run("return window.broken") is None


def test_a_click_on_a_heading_sorts(index: Page):
    index.click("#sheet-1-1 thead tr:nth-child(2) th")
    low_first = column(index, "sheet-1-1", 2)
    index.click("#sheet-1-1 thead tr:nth-child(2) th")
    assert column(index, "sheet-1-1", 2) == low_first[::-1]
    assert index.run("return document.querySelector('#sheet-1-1 thead tr:nth-child(2) th').ariaSort") == "descending"


def test_the_search_leaves_the_rows_that_match(index: Page):
    index.type("#search", "ofa")
    assert [name.rstrip("0123456789") for name in column(index, "sheet-1-1", 1)] == ["OFA-L <b>"]


def test_a_hidden_model_leaves_tables_plots_and_comparisons(index: Page):
    assert "pixels" in index.texts("figure svg text")
    index.type("#models label:nth-of-type(2) input", "")
    assert "pixels" not in "".join(column(index, "sheet-1-1", 1))
    assert "pixels" not in index.texts("figure svg text")
    assert "pixels" not in "".join(index.texts("#comparison-table tbody td"))


def test_published_and_reproduced_numbers_are_drawn(index: Page):
    marks = index.run("return [...document.querySelectorAll('#figures svg title')].map((e) => e.textContent)")
    assert "Kosmos-2: published 52.32" not in marks
    assert "kosmos: published 52.32" in marks
    assert "OFA-L <b>: published 79.96" in marks


def test_breakdowns_are_drawn_for_the_chosen_split(index: Page):
    titles = index.texts("#breakdown-figures figcaption")
    assert {"position words: with (n=3)", "position words: without (n=5)"} <= set(titles)


def test_the_gallery_shows_one_group_at_a_time_in_its_order(gallery: Page):
    everything = column(gallery, "samples", 3)
    gallery.type("#group", "worst")
    worst = column(gallery, "samples", 3)
    assert len(worst) < len(everything)
    assert worst == sorted(worst)
    gallery.type("#group", "unparsed")
    assert len(column(gallery, "samples", 3)) == 1


def test_the_gallery_is_searched_by_expression(gallery: Page):
    gallery.type("#search", EXPRESSIONS[0])
    assert gallery.texts("#samples .expression") == [EXPRESSIONS[0]]


def test_pictures_carry_truth_and_prediction_and_absent_images_a_placeholder(gallery: Page):
    drawn = gallery.run(
        "return [...document.querySelectorAll('#samples svg')].map((svg) => ["
        "svg.querySelectorAll('image').length, svg.querySelectorAll('.absent').length,"
        "svg.querySelectorAll('.truth').length, svg.querySelectorAll('.prediction').length])"
    )
    assert isinstance(drawn, list)
    assert {tuple(counts[:3]) for counts in drawn} == {(1, 0, 1), (0, 1, 1)}
    assert {counts[3] for counts in drawn} == {0, 1}


def test_every_picture_of_the_gallery_is_there(gallery: Page):
    script = (
        "const done = arguments[arguments.length - 1];"
        "Promise.all([...document.querySelectorAll('#samples svg image')].map((e) => new Promise((good) => {"
        "const image = new Image(); image.onload = () => good(image.naturalWidth); image.onerror = () => good(0);"
        "image.src = e.href.baseVal; }))).then(done)"
    )
    widths = gallery.chrome.execute_async_script(script)
    assert set(widths) == {160}


def test_the_pages_lead_to_one_another(chrome: Chrome, results: Path):
    page = Page(chrome, results / "gallery/index.html")
    page.click("a[aria-label='kosmos on refcoco val']")
    assert page.texts("h1") == ["kosmos on refcoco val"]
    page.click("header nav a:nth-of-type(2)")
    assert page.texts("h1") == ["pixels on refcoco val"]
    page.click("header nav a")
    page.click("header nav a")
    assert page.texts("h1") == ["Tables"]
