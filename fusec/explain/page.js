"use strict";
// Search and zoom. Without this script the page shows everything, at the size that fits.
const all = (root, selector) => Array.from(root.querySelectorAll(selector));

function addSearch(article) {
  const field = article.querySelector(".search");
  const found = article.querySelector(".found");
  const texts = new Map(all(article, ".detail[data-of]").map((detail) => {
    const parts = all(detail, "h2, .operations, summary").map((part) => part.textContent);
    return [detail.id, parts.join("\n").toLowerCase()];
  }));
  const marked = all(article, "[data-stands]");
  const boxes = all(article, ".stage g.op, .stage g.again, .stage g.given, .stage g.read, .stage g.passed, .stage g.result");
  let hits = [];
  field.addEventListener("input", () => {
    const word = field.value.trim().toLowerCase();
    hits = word ? Array.from(texts.keys()).filter((id) => texts.get(id).includes(word)) : [];
    const names = new Set(hits);
    for (const each of marked) {
      const stands = each.dataset.stands.split(" ");
      each.classList.toggle("miss", Boolean(word) && !stands.some((id) => names.has(id)));
    }
    for (const box of boxes) {
      box.classList.toggle("hit", Boolean(word) && box.textContent.toLowerCase().includes(word));
    }
    found.textContent = word ? `${hits.length} of ${texts.size} segments` : "";
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.length) {
      const step = event.shiftKey ? hits.length - 1 : 1;
      const at = hits.indexOf(location.hash.slice(1));
      location.hash = hits[at < 0 ? 0 : (at + step) % hits.length];
    }
  });
}

function addZoom(stage, tools) {
  const picture = stage.querySelector("svg");
  const natural = picture.viewBox.baseVal.width;
  // Keeps the point of the picture that is at x, y of the stage.
  function zoom(factor, x, y) {
    const before = picture.getBoundingClientRect();
    const frame = stage.getBoundingClientRect();
    const across = (frame.left + x - before.left) / before.width;
    const down = (frame.top + y - before.top) / before.height;
    const width = Math.min(8 * natural, Math.max(120, factor * before.width));
    picture.style.width = `${width}px`;
    stage.scrollLeft = across * width - x;
    stage.scrollTop = down * picture.getBoundingClientRect().height - y;
  }
  const middle = (factor) => zoom(factor, stage.clientWidth / 2, stage.clientHeight / 2);
  const actions = {
    out: () => middle(1 / 1.4),
    in: () => middle(1.4),
    full: () => middle(natural / picture.getBoundingClientRect().width),
    fit: () => { picture.style.width = ""; },
  };
  for (const button of all(tools, "button")) {
    button.addEventListener("click", () => {
      if (stage.offsetParent !== null) actions[button.dataset.zoom]();
    });
  }
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
}

for (const article of all(document, "article")) {
  all(article, "[data-script]").forEach((part) => { part.hidden = false; });
  addSearch(article);
  all(article, ".stage").forEach((stage) => addZoom(stage, article.querySelector(".tools")));
}
