"""The page of a run in a real browser: what it shows, fetches and logs, and what can be done with it."""

import csv
import shutil
from pathlib import Path

import pytest

from report.browser import Browser
from templates import template
from tiny import Podium, done, podium_at, two_trained_runs

CARDS = "document.querySelectorAll('.card').length"
# The contrast of every text with what lies behind it, after WCAG 2.1; texts on pictures and disabled controls are none.
LOW_CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const light = (colour) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return [255, 255, 255, 1];
  };
  const faults = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const skipped = node.closest("script, style, [disabled], svg, .skip, option");
    if (!own || skipped || !node.getClientRects().length) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) faults.push([node.tagName, node.textContent.trim().slice(0, 20), contrast].join(" "));
  }
  return faults;
})()
"""
WITHOUT_NAME = """
[...document.querySelectorAll("button, select, input, a")]
  .filter((node) => !(node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length
    || node.querySelector("img[alt]")))
  .map((node) => node.outerHTML.slice(0, 80))
"""


def with_report(root: Path) -> None:
    shutil.copytree(template(two_trained_runs), root, dirs_exist_ok=True)
    podium_at(root, "report", "-c", "tiny", "--runs", "idle")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The report of a run that has learned nothing, so that it makes mistakes."""
    shutil.copytree(template(with_report), tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "tiny" / "idle" / "report.html"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_the_page_opens_without_errors_and_fetches_nothing(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.run("document.querySelectorAll('section').length") >= 8
    assert browser.run(CARDS) > 0
    assert browser.problems() == []
    assert browser.addresses() == [page.resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(LOW_CONTRAST) == []
    assert browser.run(WITHOUT_NAME) == []


@pytest.mark.slow
def test_a_cell_of_the_confusion_matrix_shows_its_images(browser: Browser, page: Path) -> None:
    browser.open(page)
    cell = ".matrix .off button"
    count = int(browser.run(f"document.querySelector('{cell}').textContent"))
    label, predicted = (
        browser.run(f"document.querySelector('{cell}').dataset.{name}") for name in ("label", "predicted")
    )
    browser.click(cell)
    assert browser.run(CARDS) == count
    assert browser.run("document.querySelector('#label').value") == label
    assert browser.run("document.querySelector('#predicted').value") == predicted
    assert browser.run(f"document.querySelector('{cell}').getAttribute('aria-pressed')") == "true"
    browser.click("#clear")
    assert browser.run(CARDS) > count


@pytest.mark.slow
def test_usual_ids_and_labels_stand_in_one_line_and_the_runs_fit(browser: Browser, page: Path) -> None:
    browser.open(page)
    card = "{id: 'train_photo_000123', label: 'Northern Mockingbird', predicted: 'Black-footed Albatross'}"
    browser.run(f"document.querySelector('.card dl').replaceWith(factsOf({card}))")
    heights = browser.run(
        "[...document.querySelectorAll('.card')[0].querySelectorAll('dd')].map((d) => d.clientHeight)"
    )
    assert len(heights) == 5
    assert len(set(heights)) == 1, heights
    browser.open(page.parent.parent / "report.html")
    assert browser.run("[...document.querySelectorAll('#runs .wide')].every((w) => w.scrollWidth <= w.clientWidth)")


@pytest.mark.slow
def test_a_judgement_can_be_given_among_thousands_of_classes(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("for (let number = 0; number < 5000; number++) data.classes.push(`class ${number}`); draw()")
    assert browser.run("document.querySelector('.card select').options.length") == 1
    browser.run("document.querySelector('.card select').focus()")
    assert browser.run("document.querySelector('.card select').options.length") > 5000
    browser.choose(".card select", "class 4999")
    browser.run("draw()")
    assert browser.run("document.querySelector('.card select').value") == "class 4999"
    browser.click("#forget")


@pytest.mark.slow
def test_the_arrow_keys_move_between_cells(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('.matrix button[tabindex=\"0\"]').focus()")
    before = browser.run("document.activeElement.getAttribute('aria-label')")
    browser.press("ArrowDown")
    after = browser.run("document.activeElement.getAttribute('aria-label')")
    assert after != before
    assert after.startswith("label ")
    assert browser.run("document.querySelectorAll('.matrix button[tabindex=\"0\"]').length") == 1


@pytest.mark.slow
def test_the_gallery_filters_and_sorts(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.choose("#kind", "mistakes")
    browser.choose("#label", "red")
    labels = browser.run(
        "[...document.querySelectorAll('.card dl div:nth-of-type(2) dd')].map((cell) => cell.textContent)"
    )
    assert labels
    assert set(labels) == {"red"}
    browser.choose("#label", "")
    browser.choose("#order", "id")
    ids = browser.run("[...document.querySelectorAll('.card')].map((card) => card.dataset.id)")
    assert ids == sorted(ids)
    browser.choose("#find", ids[-1])
    assert browser.run("[...document.querySelectorAll('.card')].map((card) => card.dataset.id)") == [ids[-1]]


@pytest.mark.slow
def test_tables_are_sorted_by_a_click(browser: Browser, page: Path) -> None:
    browser.open(page)
    recalls = "[...document.querySelectorAll('#classes tbody tr')].map((row) => row.cells[4].dataset.value)"
    for expected in ("descending", "ascending"):
        browser.click("#classes th:nth-child(5) button")
        assert browser.run("document.querySelector('#classes th:nth-child(5)').getAttribute('aria-sort')") == expected
    values = [float(value) for value in browser.run(recalls) if value]
    assert values == sorted(values)


@pytest.mark.slow
def test_judgements_become_corrections_and_outlive_a_reload(
    browser: Browser, page: Path, downloads: Path, podium: Podium
) -> None:
    browser.save_downloads(downloads)
    browser.open(page)
    browser.click("#forget")
    browser.choose("#kind", "mistakes")
    ids = browser.run("[...document.querySelectorAll('.card')].slice(0, 2).map((card) => card.dataset.id)")
    right = browser.run(f"document.querySelector('.card[data-id=\"{ids[0]}\"] select').options[2].value")
    browser.choose(f'.card[data-id="{ids[0]}"] select', right)
    browser.choose(f'.card[data-id="{ids[1]}"] select', "drop")
    assert browser.run("document.querySelector('#marked').textContent") == "2 labels judged"
    browser.open(page)
    assert browser.run("document.querySelector('#marked').textContent") == "2 labels judged"
    assert browser.run("document.querySelectorAll('.card.marked').length") == 2
    browser.choose("#why", 'looked, "twice"')
    browser.click("#download")
    path = downloads / "corrections.csv"
    browser.wait(path.exists)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    reason = 'looked, "twice"'
    assert rows == [{"id": ids[0], "label": right, "why": reason}, {"id": ids[1], "label": "drop", "why": reason}]
    assert browser.problems() == []
    _, err = done(podium("folds", "-c", "tiny", "--k", "2", "--force", "--corrections", path))
    assert "1 label changed, 1 image dropped" in err


@pytest.mark.slow
def test_the_page_of_the_competition_opens_without_errors(browser: Browser, page: Path) -> None:
    browser.open(page.parents[1] / "report.html")
    assert browser.run("document.querySelector('#runs a').getAttribute('href')") == "idle/report.html"
    assert browser.problems() == []
    assert browser.run(LOW_CONTRAST) == []
