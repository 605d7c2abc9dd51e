"""Every page in a browser: no complaint of it, readable in both themes and on a telephone, and open to everybody."""

import pytest

pytestmark = pytest.mark.browser
OF_A_RUN = ("", "/tasks", "/groups", "/episodes", "/rollouts", "/traces", "/lineage", "/review")
SEVERE = ("serious", "critical")


@pytest.fixture
def addresses(visit):
    visit.open("/")
    links = visit.page.eval_on_selector_all("th a[href^='/runs/']", "all => all.map((a) => a.getAttribute('href'))")
    runs = [next(link for link in links if link.startswith(f"/runs/{place}/")) for place in ("demo", "short")]
    bar = visit.page.eval_on_selector_all(".top nav[aria-label='Dashboard'] a", "all => all.map((a) => a.getAttribute('href'))")
    found = [*bar, *(run + path for run in runs for path in OF_A_RUN)]
    return [*found, *(address for run in runs for address in deeper(visit, run))]


def deeper(visit, run):
    """One task of a run, one group, one episode with its tokens, two episodes side by side, one to label."""
    for page, part in (
        ("/tasks", "/tasks/"),
        ("/groups", "/groups/"),
        ("/episodes", "/episodes/"),
        ("/tasks", "/pair?"),
        ("/review", "/review/"),
    ):
        visit.open(run + page)
        links = visit.page.locator(f"main a[href*='{part}']")
        if links.count():  # a run that has changed nothing has no pair
            address = links.first.get_attribute("href")
            yield address
            if part == "/episodes/":
                yield f"{address}/tokens"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_quiet_and_open_to_all(visit, addresses, theme):
    from axe_playwright_python.sync_playwright import Axe

    visit.page.emulate_media(color_scheme=theme)
    found = {}
    for address in addresses:
        visit.open(address)
        assert visit.page.title().endswith("Tracewheel"), address
        worst = [rule for rule in Axe().run(visit.page).response["violations"] if rule["impact"] in SEVERE]
        found |= {f"{address} {rule['id']}": [node["html"][:160] for node in rule["nodes"][:2]] for rule in worst}
    assert not found
    assert not visit.complaints


def test_nothing_runs_over_the_side_of_a_telephone(visit, addresses):
    visit.page.set_viewport_size({"width": 400, "height": 800})
    wide = []
    for address in addresses:
        visit.open(address)
        if visit.page.evaluate("document.documentElement.scrollWidth") > 400:
            wide.append(address)
    assert not wide


def test_keys_lead_everywhere(visit, addresses):
    visit.open("/")
    visit.page.keyboard.press("j")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**/runs/short/*")
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("t")
    visit.page.wait_for_url("**/tasks")
    visit.page.keyboard.press("?")
    visit.page.wait_for_url("**/help")
    visit.page.keyboard.press("t")
    chosen = visit.page.evaluate("document.documentElement.dataset.theme")
    visit.page.reload()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == chosen
    assert not visit.complaints


def test_the_list_narrows_as_one_types(visit):
    visit.open("/")
    before = visit.page.locator("tr[data-row]").count()
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("no such run")
    visit.page.locator("tr[data-row]").first.wait_for(state="detached")
    assert before > 0 and "q=no+such+run" in visit.page.url.replace("%20", "+")
