"""The page in headless Chromium: pictures that fit a screen, search and zoom."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from test_charts import layered, of_layers
from test_explain_page import example

from fusec.explain.facts import Segmentation
from fusec.explain.groups import FEW, MOST_SHOWN
from fusec.explain.page import Explained

SCREENS = {1280: 900, 390: 844}
LAYERS = {13: 1, 65: 5, 598: 46}
"""Layers of 13 operations in two segments, by the number of operations."""
PAGES = [*(f"equal-{n}" for n in LAYERS), *(f"named-{n}" for n in LAYERS)]

HARNESS = """\
<!doctype html><title>waiting</title>
FRAMES
<script>
const settled = () => new Promise((done) => setTimeout(done, 50));
const all = (page, selector) => Array.from(page.querySelectorAll(selector));
const shown = (page) => all(page, ".stage").filter((stage) => stage.offsetParent)[0];
async function look(frame) {
  const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
  const picture = shown(page).querySelector("svg"), box = picture.getBoundingClientRect();
  const found = {
    overflow: root.scrollWidth - view.innerWidth,
    height: box.height, bottom: box.bottom, boxes: picture.querySelectorAll("[data-box]").length,
    names: all(picture, ".head").map((text) => text.textContent),
    letters: 13 * box.width / picture.viewBox.baseVal.width,
    strip: page.querySelectorAll(".strip a").length,
    tools: all(page, "[data-script]").every((tool) => tool.offsetParent),
  };
  for (const action of ["in", "fit", "full"]) {
    page.querySelector(`[data-zoom=${action}]`).click();
    await settled();
    found[action] = picture.getBoundingClientRect().width / box.width;
  }
  const rows = () =>
    all(page, ".overview tr[data-stands]").filter((row) => row.offsetParent).length;
  const field = page.querySelector(".search");
  const ask = async (word) => {
    field.value = word;
    field.dispatchEvent(new view.Event("input"));
    await settled();
    return {rows: rows(), said: page.querySelector(".found").textContent,
            faint: picture.querySelectorAll("a.miss").length};
  };
  found.all = rows();
  found.mean = await ask(" MEAN_LOSS ");
  found.nothing = await ask("no such value");
  found.cleared = await ask("");
  await ask("mean_loss");
  field.dispatchEvent(new view.KeyboardEvent("keydown", {key: "Enter"}));
  await settled();
  found.at = view.location.hash;
  return found;
}
onload = async () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) found[frame.id] = await look(frame);
  document.title = JSON.stringify(found);
};
</script>
"""


def named(record: Segmentation, layers: int) -> Segmentation:
    """Return layers of different sizes, six of them in each block, which their names tell."""
    whole = layered(record, layers)
    count = len(record.segments)
    segments = [
        replace(
            segment,
            bytes=segment.bytes + k,
            outputs=tuple(f"blocks_{k // count // 6}_{name}" for name in segment.outputs),
        )
        for k, segment in enumerate(whole.segments)
    ]
    return replace(whole, segments=tuple(segments))


def pages(block: Explained) -> dict[str, str]:
    """Return pages of 13, 65 and 598 operations, of equal layers and of different ones."""
    kinds = {"equal": layered, "named": named}
    records = {
        f"{kind}-{n}": make(block.record, layers)
        for kind, make in kinds.items()
        for n, layers in LAYERS.items()
    }
    assert [*records] == PAGES
    return {name: of_layers(block, record) for name, record in records.items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what Chromium shows of each page on each screen."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium")
    folder = tmp_path_factory.mktemp("pages")
    for name, text in pages(example("cross_entropy")).items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    frames = "\n".join(
        f'<iframe id="{name} {width}" src="{name}.html" width="{width}" height="{height}"></iframe>'
        for name in PAGES
        for width, height in SCREENS.items()
    )
    harness = folder / "harness.html"
    harness.write_text(HARNESS.replace("FRAMES", frames), encoding="utf-8")
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        "--virtual-time-budget=60000", "--dump-dom", f"file://{harness}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (title,) = re.findall(r"<title>(\{.*?\})</title>", done.stdout)
    return json.loads(title)


@pytest.mark.nightly
@pytest.mark.parametrize("width", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_the_picture_fits_a_screen(found: dict[str, Any], name: str, width: int) -> None:
    seen, screen = found[f"{name} {width}"], SCREENS[width]
    operations = int(name.partition("-")[2])
    assert seen["overflow"] <= 0
    assert seen["height"] <= screen
    assert seen["bottom"] <= screen or width < 900
    assert seen["letters"] >= 7
    assert seen["strip"] == 2 * LAYERS[operations]
    assert seen["boxes"] <= MOST_SHOWN
    if name == "named-598":
        assert seen["boxes"] >= FEW
        assert seen["names"] == [f"blocks_{k}" for k in range(8)]
    if name == "equal-598":
        assert [n.split("×")[1] for n in seen["names"]] == ["46", "46"]


@pytest.mark.nightly
@pytest.mark.parametrize("width", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_search_and_zoom(found: dict[str, Any], name: str, width: int) -> None:
    seen = found[f"{name} {width}"]
    layers = LAYERS[int(name.partition("-")[2])]
    assert seen["tools"]
    assert seen["in"] == pytest.approx(1.4, rel=0.01)
    assert seen["fit"] == pytest.approx(1.0, rel=0.01)
    assert seen["full"] == pytest.approx(13 / seen["letters"], rel=0.02)
    assert seen["all"] == 2 * layers
    # The second segment of each layer computes it.
    assert seen["mean"]["rows"] == layers
    assert seen["mean"]["said"] == f"{layers} of {2 * layers} segments"
    assert (seen["nothing"]["rows"], seen["nothing"]["faint"]) == (0, seen["boxes"])
    assert (seen["cleared"]["rows"], seen["cleared"]["said"]) == (2 * layers, "")
    assert seen["at"] == "#f0-s1"
