"""The page in a real browser: it loads from disk alone, turns, names tasks, hides runs, and fits a narrow window."""

from __future__ import annotations

import shutil

import pytest

pytestmark = pytest.mark.thorough

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no Chromium here: sh tools/chromium.sh installs it", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright: make installs it")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A headless browser with a profile of its own."""
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=CHROMIUM, args=FLAGS, headless=True
        )
        yield context
        context.close()


@pytest.fixture
def view(chromium, made):
    """Opens the page; afterwards nothing may have been complained about or asked from outside."""
    page, asked, said = chromium.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.set_viewport_size({"width": 1300, "height": 900})
    address = (made.folder / "index.html").as_uri()
    page.goto(address)
    yield page
    page.close()
    assert said == []
    assert [url for url in asked if url != address and not url.startswith("data:")] == []


def pixels(page, canvas: str) -> str:
    return page.eval_on_selector(canvas, "canvas => canvas.toDataURL()")


SPACE = 'canvas[data-embedding="0"][data-kind="space"]'
FLAT = 'canvas[data-embedding="0"][data-kind="flat"]'


def place(page, canvas: str) -> dict:
    page.locator(canvas).scroll_into_view_if_needed()
    return page.locator(canvas).bounding_box()


def hover(page, canvas: str) -> str:
    """Search a canvas line by line until the pointer meets a task; what the page says there."""
    box = place(page, canvas)
    for y in range(8, int(box["height"]), 14):
        for x in range(8, int(box["width"]), 14):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.locator("#tip").is_visible():
                return page.locator("#tip").inner_text()
    raise AssertionError("no task was met")


def test_it_opens_with_every_section_and_every_view_drawn(view):
    assert view.title() == "Report on 4 runs"
    assert view.locator("section").count() == 7
    for canvas in view.query_selector_all("canvas"):
        assert canvas.evaluate("c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size") > 20


def test_the_space_turns_when_dragged_and_comes_back(view):
    before = pixels(view, SPACE)
    box = place(view, SPACE)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    view.mouse.move(x, y)
    view.mouse.down()
    view.mouse.move(x + 80, y + 30, steps=4)
    view.mouse.up()
    view.mouse.move(5, 5)
    turned = pixels(view, SPACE)
    assert turned != before
    view.mouse.dblclick(x, y)
    view.mouse.move(5, 5)
    assert pixels(view, SPACE) == before
    view.keyboard.press("ArrowLeft")
    assert pixels(view, SPACE) != before


def test_the_wheel_zooms_what_was_clicked_and_scrolls_the_page_otherwise(view):
    box = place(view, SPACE)
    view.mouse.move(box["x"] + 20, box["y"] + 20)
    before, top = pixels(view, SPACE), view.evaluate("scrollY")
    view.mouse.wheel(0, -200)
    view.wait_for_function("top => scrollY < top", arg=top)
    box = place(view, SPACE)
    view.mouse.click(box["x"] + 20, box["y"] + 20)
    top = view.evaluate("scrollY")
    view.mouse.wheel(0, -200)
    view.mouse.move(5, 5)
    view.wait_for_function("([c, old]) => document.querySelector(c).toDataURL() !== old", arg=[SPACE, before])
    assert view.evaluate("scrollY") == top


@pytest.mark.parametrize("canvas", [SPACE, FLAT])
def test_hovering_names_the_task_and_its_parameters(view, canvas):
    other = FLAT if canvas == SPACE else SPACE
    before = pixels(view, other)
    text = hover(view, canvas)
    assert text.startswith("task-") and "goal [" in text
    assert pixels(view, other) != before  # the same task is lit in the other view
    view.mouse.move(5, 5)
    assert not view.locator("#tip").is_visible()


def test_a_hostile_task_name_is_shown_as_text(view):
    assert "<script>alert(1)</script>" in hover(view, 'canvas[data-embedding="1"][data-kind="flat"]')


def test_ticks_hide_a_run_everywhere_and_show_it_again(view):
    parts = view.locator('[data-run="0"]')
    kinds = set(parts.evaluate_all("all => all.map(one => one.tagName.toLowerCase())"))
    assert {"tr", "td", "th", "div", "g"} <= kinds  # rows, columns, blocks, and lines in figures
    shown = "all => all.filter(one => getComputedStyle(one).display !== 'none').length"
    total, others = parts.evaluate_all(shown), view.locator('[data-run="2"]').evaluate_all(shown)
    assert total == parts.count() > 20
    view.uncheck('input[data-toggles="0"]')
    assert parts.evaluate_all(shown) == 0
    assert view.locator('[data-run="2"]').evaluate_all(shown) == others
    view.check('input[data-toggles="0"]')
    assert parts.evaluate_all(shown) == total


def test_dark_and_light_by_system_and_by_button(view):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    ink = "getComputedStyle(document.querySelector('figure svg text')).fill"
    view.emulate_media(color_scheme="light")
    light, light_ink = view.evaluate(colours), view.evaluate(ink)
    view.emulate_media(color_scheme="dark")
    assert view.evaluate(colours) != light
    assert view.evaluate(ink) == view.evaluate(colours)[1] != light_ink
    view.click("#theme")
    assert view.evaluate(colours) == light
    view.reload()
    assert view.evaluate(colours) == light  # the choice is kept
    view.evaluate("localStorage.clear()")


@pytest.mark.parametrize("width", [360, 768, 1300])
def test_no_window_needs_to_be_scrolled_sideways(view, width):
    view.set_viewport_size({"width": width, "height": 800})
    for details in view.query_selector_all("details"):
        details.evaluate("one => { one.open = true; }")
    assert view.evaluate("document.documentElement.scrollWidth") <= width


def test_figures_and_the_summary_fit_where_there_is_room(view):
    widths = "all => all.map(one => [one.clientWidth, one.scrollWidth])"
    for client, scroll in view.locator(".wide").evaluate_all(widths):
        assert scroll <= client
    # A table is as wide as its numbers; names of runs may take another line.
    view.locator("#summary td:first-child").evaluate_all(
        "all => all.forEach(one => { one.textContent = 'long name '.repeat(9); })"
    )
    assert view.locator("#summary .scroll").first.evaluate("one => one.scrollWidth <= one.clientWidth")
