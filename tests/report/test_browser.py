"""The page in a real browser: it opens from disk, sorts, filters and draws, without network requests."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import polars as pl
import pytest

from kernel_matrix.report.source_texts import SOURCES, SourceTexts
from tests.analysis.made import cell, frame, over_sessions, tables
from tests.report.test_page import HOSTILE, LOG, gpus_rows
from tests.report.test_rounds_and_money import generated_rows

PAGES = (
    "leaders", "problem/softmax", "problem/none", "heat", "gpus", "cells", "failures", "roofline", "cascade", "noise",
    "drift", "answers", "cell/0", "cell/99999",
)  # fmt: skip
CHARTLESS = ("leaders", "problem/none", "heat", "cells", "failures", "answers", "cell/99999")
_FACTS = {"intensity": 4.0, "flops_per_s": 2e12, "peak_flops_per_s": 6e13, "peak_bytes_per_s": 4e12}


def timed(gpu, problem, name, ns, night=0, **columns):
    medians = [(1000.0 + n, ns + n) for n in range(3)]
    return over_sessions(
        medians,
        gpu=gpu,
        problem=problem,
        candidate=f"{problem}/{name}",
        night=night,
        spread_between=0.01,
        **_FACTS,
        **columns,
    )


def some_tables():
    """20 cells of two GPUs, two nights, one failure, with samples of the first."""
    rows = [
        row
        for gpu in ("h100", "h200")
        for problem in ("argmax", "softmax")
        for place, name in enumerate(("one", "two"))
        for night in (0, 1)
        for row in timed(gpu, problem, name, 400.0 + 300 * place + 50 * night, night)
    ]
    rows += [
        cell(gpu=gpu, candidate="softmax/bad", problem="softmax", status="timeout", fault="candidate", message="9 s")
        for gpu in ("h100", "h200")
    ]
    rows.append(cell(gpu="h200", candidate="softmax/lost", status="gpu_busy", fault="infra", message="held"))
    made = tables(rows)
    joins = made.cells.filter(status="passed").select("record", "session", "workload").collect().rows()
    samples = [
        {"record": record, "session": session, "workload": workload, "role": role, "contestant": contestant,
         "regime": "cold", "calls_per_sample": 1, "block": n // 5, "index": n, "device_ns": 900 + 7 * n,
         "discarded": "throttled" if n == 3 else None}
        for record, session, workload in joins
        for role, contestant in (("candidate", "candidate"), ("baseline", "eager"))
        for n in range(10)
    ]  # fmt: skip
    return replace(made, samples=frame("samples", samples).lazy())


@contextmanager
def opened(browser, path, **context) -> Iterator:
    """A tab with the page; afterwards checks that there was no error and no request."""
    holder = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **context})
    tab = holder.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: asked.append(request.url))
    tab.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    tab.goto(path.as_uri())
    try:
        yield tab
        assert wrong == []
        assert [url for url in asked if url.split("#")[0] != path.as_uri()] == []
    finally:
        holder.close()


def to(tab, name):
    """Go to a page, and wait until it is drawn with all of its charts.

    Waiting is `expect`'s: `wait_for_function` would evaluate text in the page, which the page's own policy forbids.
    """
    tab.evaluate(f"location.hash = {name!r}")
    expect(tab.locator("html")).to_have_attribute("data-shown", tab.evaluate("location.hash"))
    expect(tab.locator(".chart:not(:has(svg))")).to_have_count(0)


def expect(subject):
    from playwright.sync_api import expect  # noqa: PLC0415  # the fixture has found that it is installed

    return expect(subject)


def candidates(tab):
    return tab.locator(".window tbody tr:not(.gap) td:nth-child(2)").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_drawn_without_a_word_in_the_console(browser, write_page, scheme):
    with opened(browser, write_page(some_tables()), color_scheme=scheme) as tab:
        for name in PAGES:
            to(tab, name)
            assert tab.locator(".chart").count() > 0 or name in CHARTLESS, name
            assert tab.locator("text=could not be drawn").count() == 0


def test_cells_are_filtered_by_words_columns_and_choices(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "cells")
        expect(tab.locator(".count")).to_have_text("11 rows")
        search = tab.locator("input[type=search]")
        for text, rows in (
            ("two", 4),
            ("two gpu=h200", 2),
            ("gpu=h1*,h2* status!=passed", 3),
            ("nowhere", 0),
            ("", 11),
        ):
            search.fill(text)
            expect(tab.locator(".count")).to_have_text("11 rows" if rows == 11 else f"{rows} of 11 rows")
        tab.get_by_label("GPU", exact=True).select_option("h100")
        expect(tab.locator(".count")).to_have_text("5 of 11 rows")


def test_numbers_are_compared_and_bad_filters_say_why(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "cells/speedup>2")
        expect(tab.locator(".count")).to_have_text("4 of 11 rows")
        expect(tab.locator(".wrong")).to_be_hidden()
        search = tab.locator("input[type=search]")
        for text, said in (
            ("speedupp>2", "There is no column speedupp. Columns: cell_id, workload, problem"),
            ("speedup>fast", "fast in speedup>fast is not a number."),
            ("gpu>h100", "gpu is text, which > does not compare: use = or !=."),
            ("gpu=", "gpu= lacks a value."),
        ):
            search.fill(text)
            expect(tab.locator(".wrong")).to_contain_text(said)
        search.fill("speedup<=2")
        expect(tab.locator(".count")).to_have_text("4 of 11 rows")


def test_the_address_keeps_filters_and_choices(browser, write_page):
    path = write_page(some_tables())
    with opened(browser, path) as tab:
        to(tab, "cells")
        tab.locator("input[type=search]").fill("two speedup>1")
        tab.get_by_label("GPU", exact=True).select_option("h100")
        expect(tab.locator(".count")).to_have_text("2 of 11 rows")
        address = tab.evaluate("location.hash")
    with opened(browser, path) as tab:
        to(tab, address.removeprefix("#"))
        expect(tab.locator(".count")).to_have_text("2 of 11 rows")
        assert tab.locator("input[type=search]").input_value() == "two speedup>1"
        assert tab.get_by_label("GPU", exact=True).input_value() == "h100"


def test_a_table_is_downloaded_as_it_is_filtered(browser, write_page):
    rows = [cell(candidate="=cmd()", gpu=gpu, category='a,"b"') for gpu in ("h100", "h200")]
    with opened(browser, write_page(tables(rows)), accept_downloads=True) as tab:
        to(tab, "cells/gpu=h200")
        expect(tab.locator(".count")).to_have_text("1 of 2 rows")
        with tab.expect_download() as waiting:
            tab.get_by_role("button", name="Download All cells as CSV").click()
        found = list(csv.DictReader(waiting.value.path().read_text(encoding="utf-8").splitlines()))
    assert [(row["candidate"], row["gpu"], row["category"]) for row in found] == [("'=cmd()", "h200", 'a,"b"')]


@pytest.mark.parametrize("width", [360, 768, 1400, 2560])
def test_no_page_is_wider_than_the_window(browser, write_page, width):
    rows = [
        cell(**{"candidate": f"softmax/{'long_' * 20}{n}", "message": "x" * 300, "gpu": gpu, **_FACTS})
        for n in range(3)
        for gpu in ("h100", "h200", "a_gpu_with_a_name_of_some_length")
    ]
    rows += generated_rows(origin_model="m" * 80)
    made = replace(some_tables(), cells=tables([*rows, *some_tables().cells.collect().to_dicts()]).cells)
    with opened(browser, write_page(made), viewport={"width": width, "height": 900}) as tab:
        for name in ("overview", *PAGES):
            to(tab, name)
            assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_by_axe(browser, write_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the `dev` extra is not installed")
    made = some_tables()
    made = replace(made, cells=tables([*generated_rows(), *made.cells.collect().to_dicts()]).cells)
    with opened(browser, write_page(made), color_scheme=scheme) as tab:
        for name in ("overview", *PAGES, "cells/nothing=1"):
            to(tab, name)
            found = axe.Axe().run(tab).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], name


def test_pages_without_content_have_no_link(browser, write_page):
    with opened(browser, write_page(tables([cell()]))) as tab:
        shown = tab.locator("header nav a").all_inner_texts()
    assert not {"Cascade", "Drift", "Roofline", "Failures"} & set(shown)
    assert {"Overview", "Heat map", "All cells", "Answers"} <= set(shown)


def test_a_problem_has_a_page_with_its_sources(browser, write_page, monkeypatch):
    text = 'class ModelNew:  # </script><img src=x onerror=alert(5)>\n    word = "a" + """b\n'
    rows = [("of softmax/o", "one.py", text), ("of softmax", "reference.py", "/* never closed")]
    found = SourceTexts(table=pl.DataFrame(rows, schema=SOURCES, orient="row"))
    monkeypatch.setattr("kernel_matrix.report.contents.find_source_texts", lambda *_: found)
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "problem/softmax")
        expect(tab.locator("pre.code")).to_have_count(2)
        assert tab.locator("pre.code").first.inner_text() == text
        assert tab.locator("pre.code .keyword").all_inner_texts() == ["class"]
        assert tab.locator("pre.code .string").all_inner_texts() == ['"a"', '"""b\n']
        assert tab.locator("pre.code .comment").count() == 2
        assert tab.locator("main img").count() == 0
        tab.get_by_label("Right", exact=True).focus()
        tab.get_by_label("Right", exact=True).select_option("two")
        expect(tab.get_by_text("The source of two is not on this page.")).to_be_visible()
        assert tab.evaluate("location.hash").endswith("?right=two")
        assert tab.get_by_label("Right", exact=True).evaluate("(one) => one === document.activeElement")


def test_a_chart_is_downloaded_as_svg_and_png(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "gpus")
        title = "Times on h100 against h200"
        files = {}
        for ending in ("SVG", "PNG"):
            with tab.expect_download() as waiting:
                tab.get_by_role("button", name=f"Download {title} as {ending}").click()
            files[ending] = waiting.value.path().read_bytes()
            assert waiting.value.suggested_filename == f"times-on-h100-against-h200.{ending.lower()}"
    assert files["PNG"].startswith(b"\x89PNG")
    assert b"var(--" not in files["SVG"]
    assert files["SVG"].startswith(b"<svg")


def test_a_problem_shows_its_history_over_nights(browser, write_page):
    rows = [row for night in range(6) for row in timed("h200", "softmax", "one", 400.0 + 9 * night, night)]
    with opened(browser, write_page(tables(rows))) as tab:
        to(tab, "problem/softmax")
        expect(tab.get_by_role("heading", name="History")).to_be_visible()
        expect(tab.get_by_label("Speed-up night by night. Median over the sessions of a night.")).to_be_visible()


def test_two_gpus_are_drawn_beside_their_data_sheets(browser, write_page):
    with opened(browser, write_page(tables(gpus_rows(flops=1e5, bytes=1e8)))) as tab:
        to(tab, "gpus?gpu=h200&than=h100")
        expect(tab.locator("#page p").first).to_contain_text("h200 is 1.73")
        said = tab.locator(".chart svg").text_content()
        for line in ("as fast", "data sheets, memory-bound 1.00×", "h200, µs", "h100, µs"):
            assert line in said


def test_figures_of_the_overview_lead_to_their_rows(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        for link, rows in (("h100", "5 of"), ("timeout", "2 of"), ("A 100 %", "8 of")):
            to(tab, "overview")
            tab.locator("#overview").get_by_role("link", name=link, exact=True).first.click()
            expect(tab.locator(".count")).to_contain_text(f"{rows} 11 rows")


def test_roofline_is_filtered_and_leads_to_its_rows(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "roofline")
        expect(tab.locator("#page .note").last).to_contain_text("4 timed outcomes")
        tab.get_by_label("Problem", exact=True).select_option("argmax")
        expect(tab.locator("#page .note").last).to_contain_text("2 timed outcomes")
        tab.get_by_role("link", name="Rows of").click()
        expect(tab.locator(".count")).to_have_text("2 of 11 rows")


def test_cells_sort_both_ways_with_unknown_values_last(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "cells")
        heading = tab.locator(".window thead button", has_text="time")
        column = ".window tbody tr:not(.gap) td:nth-child(9)"
        heading.click()
        expect(tab.locator(".window th[aria-sort=descending]")).to_contain_text("time")
        down = tab.locator(column).all_inner_texts()
        heading.click()
        expect(tab.locator(".window th[aria-sort=ascending]")).to_contain_text("time")
        up = tab.locator(column).all_inner_texts()
        known = [float(text) for text in down if text != "–"]
        assert known == sorted(known, reverse=True)
        assert [float(text) for text in up if text != "–"] == known[::-1]
        assert down[-3:] == up[-3:] == ["–"] * 3


def test_a_place_leads_to_its_cells_and_a_cell_to_its_page(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        to(tab, "heat")
        tab.get_by_role("link", name="softmax", exact=True).click()
        expect(tab.locator("#page h2")).to_have_text("softmax")
        tab.get_by_role("link", name="7 rows", exact=True).click()
        expect(tab.locator(".count")).to_have_count(1)  # the problem's page has two
        expect(tab.locator(".count")).to_have_text("7 of 11 rows")
        assert set(candidates(tab)) == {"one", "two", "bad", "lost"}
        to(tab, "heat")
        tab.locator("a.tile").first.click()
        expect(tab.locator(".count")).to_have_text("2 of 11 rows")
        to(tab, "cells/bad")
        tab.get_by_role("link", name="bad", exact=True).first.click()
        expect(tab.locator("#page h2")).to_have_text("softmax/bad")
        expect(tab.locator("pre")).to_have_text("9 s")


def test_the_theme_can_be_switched(browser, write_page):
    with opened(browser, write_page(some_tables()), color_scheme="light") as tab:
        paper = "getComputedStyle(document.body).backgroundColor"
        before = tab.evaluate(paper)
        tab.get_by_role("button", name="Dark").click()
        expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
        after = tab.evaluate(paper)
        tab.get_by_role("button", name="Light").click()
        expect(tab.locator("html")).to_have_attribute("data-theme", "light")
        assert (tab.evaluate(paper), after != before) == (before, True)


def test_without_javascript_the_overview_is_there(browser, write_page):
    with opened(browser, write_page(some_tables()), java_script_enabled=False) as tab:
        assert tab.locator("#overview table.heat").first.is_visible()
        assert tab.get_by_text("Without JavaScript only the overview is shown.").is_visible()


def test_nothing_hostile_runs_or_becomes_an_element(browser, write_page):
    names = {
        "candidate": HOSTILE,
        "problem": HOSTILE,
        "workload": HOSTILE,
        "gpu_name": HOSTILE,
        "category": LOG,
        "toolchain": LOG,
    }
    rows = [
        cell(**{**names, "gpu": HOSTILE, "status": "timeout", "fault": "candidate", "message": LOG, "warnings": [LOG]}),
        *(
            row
            for gpu in (HOSTILE, "h200")
            for row in over_sessions([(9.0, 3.0)] * 2, **{**names, **_FACTS, "gpu": gpu, "labels": [LOG]})
        ),
    ]
    with opened(browser, write_page(tables(rows), title=LOG)) as tab:
        for name in ("overview", *PAGES, "cells/<img src=x onerror=alert(3)>"):
            to(tab, name)
            assert tab.locator("main img").count() == 0
            assert tab.locator("script").count() in (3, 4)  # ours, and the charts' library once it runs
        to(tab, "cells")
        assert HOSTILE in candidates(tab)


def test_empty_tables_are_a_page_that_says_so(browser, write_page):
    with opened(browser, write_page(tables([]))) as tab:
        assert "hold no results" in tab.locator("#overview").inner_text()
        for name in PAGES:
            to(tab, name)
            assert tab.locator("#page .statement").count() > 0, name


def test_table_of_twenty_thousand_cells_draws_few_rows(browser, write_page):
    rows = [
        cell(
            gpu=gpu,
            problem=f"p{n % 250}",
            candidate=f"p{n % 250}/c{n}",
            cell_id=f"{gpu}{n:032x}",
            baseline_median_ns=900.0 + n,
            candidate_median_ns=500.0,
        )
        for gpu in ("h100", "h200")
        for n in range(10_000)
    ]
    path = write_page(tables(rows))
    assert path.stat().st_size < 15_000_000
    with opened(browser, path) as tab:
        to(tab, "cells")
        expect(tab.locator(".count")).to_have_text("20,000 rows")
        assert tab.locator(".window tbody tr").count() < 100
        tab.locator(".window").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
        expect(tab.locator(".window tbody tr:nth-last-child(2)")).to_have_attribute("aria-rowindex", "20001")
        tab.locator("input[type=search]").fill("p249 gpu=h200")
        expect(tab.locator(".count")).to_have_text("40 of 20,000 rows")


def test_rounds_and_money_are_shown_without_javascript(browser, write_page):
    window = {"java_script_enabled": False, "viewport": {"width": 360, "height": 900}}
    with opened(browser, write_page(tables(generated_rows())), **window) as tab:
        assert tab.locator(".shares").count() == 2
        for place, plot in enumerate(tab.locator(".shares").all()):
            assert 200 < plot.bounding_box()["width"] < 360, place
        assert "Method against method" in tab.locator("#overview").inner_text()


def test_page_without_rounds_and_costs_has_no_such_section(browser, write_page):
    with opened(browser, write_page(some_tables())) as tab:
        assert "Rounds and money" not in tab.locator("#overview").inner_text()
