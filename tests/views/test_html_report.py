"""The HTML page of runs: whole, self-contained, and harmless whatever names a report has."""

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import attrs
import pytest
from report_samples import CUTS, TRAP, detailed_report, layer, sample_report

from nmpsim.report.analyses import (
    ErrorSize,
    Histogram,
    ShadowLayer,
    ShadowReport,
    Split,
    Timeline,
    WorkSpan,
)
from nmpsim.report.data import Bound, BytesMoved, RunReport
from nmpsim.report.device_use import Throughput
from nmpsim.views.analyses_text import PARTS
from nmpsim.views.html import make_html_page
from nmpsim.views.html.compare import make_change_figure
from nmpsim.views.html.figures import MAX_MARKS, NAME_CHARACTERS, make_layer_labels, shorten_names
from nmpsim.views.html.layer_graph import make_layer_graph
from nmpsim.views.html.page import choose_title
from nmpsim.views.html.run_figures import CHANNEL_CELLS, make_error_figures, make_run_figures
from nmpsim.views.html.tables import make_saturation_table, make_slow_table
from nmpsim.views.templates import load_template

EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"
EVIL += "\x1b[31m\ud800\uffff"
MAX_BYTES = 2_000_000


class Page(HTMLParser):
    """Parser that collects tags, attributes and the texts of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.cells.append([])
        self._in_cell = tag in ("td", "th")
        if self._in_cell:
            self.cells[-1].append("")

    def handle_data(self, data):
        if self._in_cell:
            self.cells[-1][-1] += data

    def handle_endtag(self, tag):
        self._in_cell = False

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def evil_report() -> RunReport:
    report = detailed_report(program=EVIL, notes=(EVIL,), trap=attrs.evolve(TRAP, message=EVIL))
    layers = [attrs.evolve(one, name=EVIL, op=EVIL, reason=EVIL) for one in report.layers]
    memory = [attrs.evolve(one, name=EVIL) for one in report.memory]
    return attrs.evolve(
        report, layers=tuple(layers), memory=tuple(memory), sources=dict.fromkeys([EVIL], EVIL)
    )


@pytest.fixture(scope="module")
def text():
    return make_html_page({"a run": detailed_report()})


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_tables_need_no_script(page):
    heads = next(row for row in page.cells if "bytes read" in row)
    row = next(row for row in page.cells if len(row) == len(heads) and row[1] == "fc")
    cells = dict(zip(heads, row, strict=True))
    assert cells["layer"] == "fc"
    assert cells["cycles"] == "2,499"
    assert cells["x bound"] == f"{2499 / 782:.2f}"
    assert cells["main cause"] == "MAC array 60.0%"
    assert (cells["cores"], cells["scratchpad %"]) == ("1", "0.8")
    assert (cells["DRAM busy %"], cells["row misses %"]) == ("6.0", "2.8")
    assert {"time %", "MAC utilization %", "bytes read", "burst %", "saturated", "worst"} < set(
        heads
    )


def test_every_column_has_an_explanation(page):
    headings = page.named("th")
    assert len(headings) > 30
    assert all(len(heading["title"]) > 5 for heading in headings)


def test_every_figure_has_a_static_picture(page, text):
    titles = re.findall(r"<figure.*?<h3>(.*?)</h3>", text, re.S)
    assert titles == [
        "Cycles by layer and cause",
        "Critical path by layer",
        "Roofline",
        "Saturation by layer and channel",
        "Cores over time",
        "Memory over time",
        "Scratchpads over time",
        "Values of 1 fc",
        "Values of 2 softmax",
    ]
    *titles, _, _ = titles  # histograms are folded, and drawn when somebody opens them
    pictures = page.named("img")
    assert len(pictures) == len(titles)
    assert all(picture["src"].startswith("data:image/") for picture in pictures)
    assert all(
        picture["alt"].startswith(title) for picture, title in zip(pictures, titles, strict=True)
    )


def test_the_page_loads_nothing(page, text):
    addresses = [a.get("src") or a.get("href") or "" for _, a in page.tags]
    assert {one[:5] for one in addresses if one} <= {"data:", "data,", "#run-", "#figu"}
    (policy,) = [a["content"] for a in page.named("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in text


def test_names_of_a_report_stay_text():
    text = make_html_page({EVIL: evil_report(), "b": sample_report()})
    page = Page(text)
    assert "alert(1)</script>" not in text
    assert "<img src=x" not in text
    assert "\x1b" not in text
    text.encode()
    assert "{{ 7" in text
    assert len(page.named("img")) == text.count('class="still"')
    kinds = [script.get("type") for script in page.named("script")]
    assert kinds.count(None) == 1  # the page's own; Vega is packed
    packed = re.findall(r'<script type="application/gzip">([A-Za-z0-9+/=]*)</script>', text)
    assert len(packed) == kinds.count("application/gzip") - 1 == text.count('class="live"')
    for spec in packed:
        json.loads(gzip.decompress(base64.b64decode(spec)))


def test_unknown_values_are_marked():
    text = make_html_page({"run": sample_report()})
    assert "nmpsim run --timeline" in text
    assert "nmpsim run --histogram LAYER" in text
    assert "Cores over time</h3>" not in text


@pytest.mark.parametrize(
    "report",
    [
        sample_report(layers=(), output_reports=()),
        sample_report(cycles=0, trap=TRAP),
        sample_report(layers=tuple(layer(n, cycles=0, macs=0) for n in range(2))),
        sample_report(layers=(layer(0, shape=(), elements=0, saturation=CUTS),)),
    ],
    ids=["no layers", "a trap", "no cycles", "a scalar"],
)
def test_unusual_runs_have_a_page(report):
    text = make_html_page({"run": report})
    assert text.endswith("</html>")
    page = Page(text)
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    assert {a["href"].removeprefix("#") for a in page.named("a")} <= anchors
    assert ("The run stopped" in text) == (report.trap is not None)


def test_slow_layers_show_bounds_and_causes():
    table = make_slow_table(detailed_report())
    titles = [heading.title for heading in table.headings]
    rows = [dict(zip(titles, (cell.text for cell in row), strict=True)) for row in table.rows]
    assert [row["cycles"] for row in rows] == ["2,499", "1,000", "1"]
    assert rows[0]["bound by"] == "compute"
    assert rows[0]["formula"] == "50000 MACs / (1 cores x 64 MACs a cycle)"
    assert rows[0]["x bound"] == "3.20"
    assert [row["cores"] for row in rows] == ["1", "1", "host"]
    assert [row["scratchpad %"] for row in rows] == ["0.8", "75.0", "0.0"]
    assert rows[0]["core cycles"] == (
        "60.0% MAC array at work; 15.0% waiting for loads; 10.0% control core at work"
    )
    assert "scratchpad %" not in [one.title for one in make_slow_table(sample_report()).headings]


def test_saturation_shows_stage_side_and_channel():
    ((_, name, line, *cells),) = make_saturation_table(sample_report()).rows
    assert (name.text[:20], line.text) == ("a_rather_long_networ", "30")
    assert [cell.text for cell in cells] == [
        "rescale", "high", "7", "0.1", "300", "0, 1, 2, 3", "2", "3: 5"
    ]  # fmt: skip


@pytest.mark.parametrize("macs", [1, 10**9])
def test_the_roofline_holds_every_point_and_both_slopes(macs):
    report = sample_report(
        layers=(layer(0, macs=macs), layer(1, macs=30, bytes=BytesMoved(10**7, 500)))
    )
    (figure,) = [one for one in make_run_figures(report) if one.title == "Roofline"]
    roof, dots = figure.spec["layer"]
    for at, field in (("x", "reach"), ("y", "speed")):
        low, high = dots["encoding"][at]["scale"]["domain"]
        points = [one[field] for one in figure.spec["data"]["values"]]
        corner = roof["data"]["values"][1][field]
        assert low < min(*points, corner) <= max(*points, corner) < high


def test_a_large_network_stays_small():
    layers = [
        layer(n, f"stage{n // 10}_block{n}_conv2_relu", shape=(1, 7, 7, 2048), saturation=CUTS)
        for n in range(80)
    ]
    spans = [
        WorkSpan(n % 32, "mac", n % 80, 1000 * (n // 32), 1000 * (n // 32) + 900, 700)
        for n in range(10_000)
    ]
    histograms = [Histogram(n, f"layer{n}", -128.0, 1.0, tuple(range(256))) for n in range(80)]
    report = detailed_report(
        layers=tuple(layers),
        timeline=Timeline(64, tuple(spans)),
        histograms=tuple(histograms),
    )
    assert len(make_html_page({"run": report}).encode()) < MAX_BYTES


def test_empty_figures_are_omitted():
    spans = [WorkSpan(0, "mac", 0, 2 * n, 2 * n + 1, 1) for n in range(MAX_MARKS + 1)]
    text = make_html_page({"run": sample_report(timeline=Timeline(0, tuple(spans)))})
    (figure,) = re.findall(r"<figure(?:(?!</figure>).)*Cores over time.*?</figure>", text, re.S)
    assert "This figure is too large to draw" in figure
    assert len(figure) < 1000


def test_channels_share_cells():
    cut = attrs.evolve(CUTS[0], channels=((0, 1), (31, 2), (32, 4), (2047, 8)))
    wide = layer(0, shape=(1, 7, 7, 2048), elements=7 * 7 * 2048, saturation=(cut, CUTS[1]))
    figures = make_run_figures(sample_report(layers=(wide,)))
    (figure,) = [one for one in figures if one.title.startswith("Saturation")]
    cells = figure.spec["data"]["values"]
    assert [(cell["channels"], cell["count"]) for cell in cells] == [
        ("others", 0),
        ("0 to 31", 3),
        ("32 to 63", 4),
        ("2016 to 2047", 8),
    ]
    assert cells[1]["share"] == pytest.approx(100 * 3 / (49 * 2048 / CHANNEL_CELLS), abs=1e-4)
    (part,) = figure.spec["vconcat"]
    assert part["encoding"]["x"]["scale"]["domain"] == [0, 2048]


def test_layers_with_other_channels_have_another_axis():
    layers = tuple(
        layer(n, shape=(1, 4, 4, channels), saturation=CUTS)
        for n, channels in enumerate((64, 16, 64))
    )
    figures = make_run_figures(sample_report(layers=layers))
    (figure,) = [one for one in figures if one.title.startswith("Saturation")]
    parts = figure.spec["vconcat"]
    assert [part["encoding"]["x"]["title"] for part in parts] == [
        "channel, of 16",
        "channel, of 64",
    ]
    assert [part["height"] for part in parts] == [16, 32]


def test_long_names_show_their_differences():
    stem = "functional_1/block_12_expand_relu/Relu6;functional_1/block_12_expand_BN/Fused"
    layers = tuple(layer(n, f"{stem}{end}/BatchNorm/shared_tail") for n, end in enumerate("abc"))
    report = sample_report(layers=layers)
    labels = make_layer_labels(report)
    assert len({label.split(" ", 1)[1] for label in labels}) == 3
    assert all(f"Fused{end}" in label for end, label in zip("abc", labels, strict=True))
    assert all(len(label) < NAME_CHARACTERS + 5 for label in labels)
    names = shorten_names([one.display_name for one in report.layers])
    assert len({name for name, _ in remarks("slow", report, names, 32)}) == 3
    other = attrs.evolve(report, layers=tuple(attrs.evolve(one, cycles=7) for one in layers))
    figure = make_change_figure({"a": report, "b": other})
    assert len({value["layer"] for value in figure.spec["data"]["values"]}) == 3


def test_tooltips_have_rounded_numbers():
    report = sample_report(layers=(layer(0, macs=12345, cycles=7001),))
    (figure,) = [one for one in make_run_figures(report) if one.title == "Roofline"]
    formats = {
        one["field"]: one.get("format") for one in figure.spec["layer"][1]["encoding"]["tooltip"]
    }
    assert formats["speed"] == formats["reach"] == ",.4~r"
    assert (formats["cycles"], formats["layer"]) == (",", None)


def headline(macro, *arguments):
    """Return the text of a macro of the summary."""
    found = getattr(load_template("html/headline.html.jinja").module, macro)(*arguments)
    return html.unescape(str(found)).strip()


def remarks(macro, *arguments):
    """Return name and words of each remark of a macro of the summary."""
    items = re.findall(
        r"<li><a[^>]*>\d+ (.*?)</a>: (.*?)</li>", headline(macro, *arguments, "run-0")
    )
    return [(name, words.strip()) for name, words in items]


def test_the_first_screen_shows_the_summary():
    few = attrs.evolve(CUTS[0], count=2)
    layers = (
        layer(0, "a", cycles=2000, bound=Bound(mac=1000), elements=1000, saturation=CUTS),
        layer(1, "b", cycles=1000, elements=8000, saturation=(few,)),
        layer(2, "c", cycles=300, elements=8000, saturation=(few,)),
        layer(3, "d", cycles=200, elements=100, saturation=(few,)),
    )
    exact, poor = ErrorSize(float("inf"), 0.0, 0.0), ErrorSize(21.25, 0.3, 2.0)
    shadow = ShadowReport(
        None,
        (),
        (),
        (ShadowLayer(0, 1, "a", rounding=exact), ShadowLayer(1, 2, "b", rounding=poor)),
    )
    report = sample_report(layers=layers, cycles=4000, shadow=shadow)
    assert headline("verdict", report) == (
        f"F{report.limited_by[1:]}; in 2 layers of 4 more than 0.1% of the values saturated;"
        " the worst SQNR is 21.2 dB."
    )
    numbers = headline("numbers", report, "run-0")
    assert re.findall("<dd>(.*?)</dd>", numbers)[:2] == ["4,000", "4.38 us"]
    assert '<div class="alarm"><dt>saturated values</dt><dd>13</dd>' in numbers
    assert '<a href="#run-0-layer-1">rounding only, layer 1</a>' in numbers
    often = attrs.evolve(report, throughput=Throughput(2, (4000, 2000), 800.0))
    assert (
        "<dt>throughput</dt><dd>800,000 / s</dd>"
        '<dd class="note">1,000.0 cycles per inference</dd>' in headline("numbers", often, "run-0")
    )
    slow = remarks("slow", report, "abcd", 32)
    assert [name for name, _ in slow] == ["a", "b", "c"]
    assert slow[0][1] == (
        "50.0% of the cycles, 2.00 x its bound; critical path: 30.0% MAC array,"
        " 10.0% DRAM: transferring bursts; 1 of 32 cores have work"
    )
    unknown = attrs.evolve(layers[0], critical_path={}, cores=32)
    others = attrs.evolve(report, layers=(unknown, *layers[1:]))
    assert remarks("slow", others, "abcd", 32)[0][1] == (
        "50.0% of the cycles, 2.00 x its bound; 60.0% MAC array at work"
    )
    saturated = remarks("saturated", report, "abcd")
    assert [name for name, _ in saturated] == ["d", "a"]
    assert saturated[1][1] == (
        "0.7% of the values, most at rescale, high side, by up to 300 units of the last place"
    )
    assert headline("remaining", report) == "4 values in 2 more layers, at most 0.1% of each"
    assert remarks("inexact", report, "abcd", PARTS) == [("b", "21.2 dB")]
    table = make_saturation_table(report)
    place = [heading.title for heading in table.headings].index("saturated")
    assert [row[place].mark for row in table.rows] == ["alarm", "", "", "alarm"]


def test_every_colour_of_the_page_has_a_dark_one(text):
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    light, dark = (
        dict(re.findall(r"(--\w+): (#\w+)", found)) for found in re.findall(r":root {(.*?)}", style)
    )
    assert set(light) == set(dark)
    assert not set(light.values()) & set(dark.values())
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", style)) == {*light.values(), *dark.values()}


def test_a_first_screen_without_problems_is_short():
    report = sample_report(layers=(layer(0, "a"),), device={"name": "x"})
    assert "no value saturated" in headline("verdict", report)
    assert headline("saturated", report, "a", "run-0") == ""
    assert headline("remaining", report) == "No value saturated"
    assert (
        '<dt>worst SQNR</dt><dd>-</dd><dd class="note">nmpsim run --shadow measures it</dd>'
        in headline("numbers", report, "run-0")
    )
    assert choose_title("run 7", sample_report(program="main")) == "run 7"
    assert choose_title("run 7", sample_report()) == "lenet"


def test_sources_of_errors_are_shown():
    size = ErrorSize(30.0, 0.25, 1.5)
    split = Split(None, None, size, attrs.evolve(size, mean_error_ulp=0.0), size)
    shadow = ShadowReport("w.npz", (), (), (ShadowLayer(1, 2, "fc", split=split),))
    (figure,) = make_error_figures(sample_report(shadow=shadow))
    assert [(one["layer"], one["part"], one["mean"]) for one in figure.spec["data"]["values"]] == [
        ("1 fc", "quantization of the weights", 0.25),
        ("1 fc", "rounding", 0.25),
    ]
    layers = (ShadowLayer(1, 2, "fc", isolated=size, split=split),)
    report = sample_report(shadow=attrs.evolve(shadow, layers=layers))
    ((_, words),) = remarks("inexact", report, "abc", PARTS)
    assert words == (
        "30.0 dB; mostly quantization of the weights: 0.25 units of the last place on average"
    )
    assert list(make_error_figures(sample_report())) == []


def test_the_network_is_a_picture(text, page):
    graph = make_layer_graph(detailed_report())
    boxes = {box.layer.index: box for row in graph.rows for box in row.boxes}
    assert sorted(boxes) == [0, 1, 2]
    assert boxes[0].x < boxes[1].x < boxes[2].x
    assert re.findall('<text x="5" y="14">(.*?)</text>', text) == ["0 conv", "1 conv", "2 softmax"]
    assert re.findall('<text x="5" y="28">(.*?)</text>', text) == ["28.6%", "71.4%", "&lt;0.1%"]
    assert len(re.findall(r'<a href="#run-0-layer-2" transform="[^"]*" class="host">', text)) == 1
    assert [width for _, width, _ in boxes[1].bar] == [67, 17, 6, 10, 1, 11]  # of 112
    assert boxes[1].bar[0] == (0, 67, "#0072b2")
    assert boxes[1].bar[1][0] == 67
    assert (
        "<title>fc: conv; 2,499 cycles, 71.4% of the run; 60.0% MAC array at work;"
        " 15.0% waiting for loads; 10.0% control core at work</title>" in text
    )
    assert graph.legend[0] == ("#0072b2", "MAC array at work")
    assert len(graph.legend) == 6
    targets = {attributes.get("id") for _, attributes in page.tags}
    links = {a["href"] for a in page.named("a") if "-layer-" in a["href"]}
    assert links == {f"#run-0-layer-{n}" for n in range(3)}
    assert {link.removeprefix("#") for link in links} <= targets
    assert "<title>a_rather_long_network_name__stage1_block1_conv1_res: conv;" in text


PROBE = """<script>
const drawn = () =>
  document.querySelectorAll("figure.drawn .live :is(svg.marks, canvas.marks)").length;
function look(left) {
  const figures = document.querySelectorAll("figure").length;
  if (drawn() < figures && left) {
    setTimeout(look, 100, left - 1);
    return;
  }
  const table = Array.from(document.querySelectorAll("table.sortable"))
    .find((one) => one.caption.textContent.startsWith("Layers of"));
  const names = () => Array.from(table.tBodies[0].rows, (row) => row.cells[1].textContent);
  const column = Array.from(table.tHead.rows[0].cells).find((c) => c.textContent === "cycles");
  const tooWide = document.documentElement.scrollWidth - window.innerWidth;
  column.click();
  const down = names();
  column.click();
  const up = names();
  addFilter(table);
  const field = table.parentNode.previousElementSibling.querySelector("input");
  const shown = (words) => {
    field.value = words;
    field.dispatchEvent(new Event("input"));
    return Array.from(table.tBodies[0].rows).filter((row) => !row.hidden)
      .map((row) => row.cells[1].textContent);
  };
  const filtered = ["f*", "cycles>1,000 device", "cyc<=1", "nothing"].map(shown);
  const headings = Array.from(table.tHead.rows[0].cells);
  const buttons = headings.every((one) => one.querySelector("button"));
  const found = { figures, drawn: drawn(), tooWide, down, up, filtered, buttons };
  document.body.innerHTML = "<pre id=found></pre>";
  document.getElementById("found").textContent = JSON.stringify(found);
}
window.addEventListener("load", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  for (const figure of document.querySelectorAll("figure:not(.drawn)")) {  // a headless browser
    watcher.unobserve(figure);  // may draw no frame, and then nothing comes into view
    enliven(figure);
  }
  look(200);
});
</script></body></html>"""


@pytest.mark.parametrize("window", ["1280,6000", "420,9000"], ids=["desktop", "narrow"])
@pytest.mark.slow
def test_the_page_works_in_a_browser(text, tmp_path, window):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    path = tmp_path / "page with space.html"
    path.write_text(text.removesuffix("</body>\n</html>") + PROBE, encoding="utf-8")
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-component-update"
    flags += " disable-background-networking disable-sync enable-logging=stderr dump-dom"
    words = [f"--{flag}" for flag in flags.split()]
    words += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={window}"]
    done = subprocess.run(
        [browser, *words, "--virtual-time-budget=60000", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(html.unescape(re.findall(r'<pre id="found">(.*?)</pre>', done.stdout)[0]))
    assert "CONSOLE" not in done.stderr
    assert found["drawn"] == found["figures"] == 9
    assert found["tooWide"] <= 0
    assert found["down"][:2] == ["fc", "a_rather_long_network_name__stage1_block1_conv1_res"]
    assert found["up"] == found["down"][::-1]
    assert found["buttons"]
    conv, fc, softmax = found["down"][1], found["down"][0], found["down"][2]
    assert [sorted(names) for names in found["filtered"]] == [[fc, softmax], [fc], [softmax], []]
    assert conv not in found["filtered"][1]
