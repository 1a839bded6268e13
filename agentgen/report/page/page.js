"use strict";
// State lives in the URL: #n=selected&tab=diff&vs=other&out=wrong,build&lang=cuda&q=words. Everything else follows.

const $ = (selector, root = document) => [...root.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);
const START = { n: "", tab: "about", vs: "", out: "", lang: "", q: "" };
const small = matchMedia("(max-width: 800px)");
const nodes = $("#canvas .n"), order = nodes.map((node) => node.dataset.n);
const kernelsOf = nodes.filter((node) => node.classList.contains("candidate")).map((node) => node.dataset.n);
const best = document.querySelector("#canvas .n.best")?.dataset.n;
let all = {}, state = { ...START };

function parse() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = { ...START };
  for (const key of Object.keys(START)) if (given.has(key)) found[key] = given.get(key);
  if (!order.includes(found.n)) found.n = best ?? kernelsOf[0] ?? order[0];
  if (!Object.hasOwn(TABS, found.tab)) found.tab = "about";
  return found;
}

function change(what) {
  const next = { ...state, ...what };
  const said = new URLSearchParams(Object.entries(next).filter(([key, value]) => Object.hasOwn(START, key) && value !== START[key]));
  history.replaceState(null, "", `#${said}`);
  show();
}

function list(text) { return text.split(",").filter(Boolean); }

function show() {
  const before = state;
  state = parse();
  if (before.n !== state.n || !before.shown) select();
  filter();
  pane();
  state.shown = true;
}

function select() {
  for (const one of $(".sel")) one.classList.remove("sel");
  for (const one of $("[data-n]")) if (one.dataset.n === state.n && one.tagName !== "A") one.classList.add("sel");
  for (const node of nodes) {
    const here = node.dataset.n === state.n;
    node.setAttribute("tabindex", here ? "0" : "-1");
    node.setAttribute("aria-selected", here ? "true" : "false");
    if (here) reveal(node);
  }
}

// Scrolls the tree, never the page.
function reveal(node) {
  const box = byId("canvas"), frame = box.getBoundingClientRect(), at = node.getBoundingClientRect();
  if (at.left < frame.left + 20 || at.right > frame.right - 20) box.scrollLeft += at.left - frame.left - frame.width * 0.35;
  if (at.top < frame.top + 20 || at.bottom > frame.bottom - 20) box.scrollTop += at.top - frame.top - frame.height * 0.4;
}

function filter() {
  const out = list(state.out), lang = list(state.lang), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  for (const chip of $(".chip[data-out]")) chip.setAttribute("aria-pressed", String(out.includes(chip.dataset.out)));
  for (const chip of $(".chip[data-lang]")) chip.setAttribute("aria-pressed", String(lang.includes(chip.dataset.lang)));
  const field = byId("q");
  if (field.value !== state.q) field.value = state.q;
  const any = out.length || lang.length || words.length, kept = new Set();
  const rows = new Map($("#rows tbody tr").map((row) => [row.dataset.n, row]));
  for (const [key, row] of rows) {
    const text = row.textContent.toLowerCase(), one = all[key];
    const fits = (!out.length || out.includes(one.family)) && (!lang.length || lang.includes(one.language)) && words.every((word) => text.includes(word));
    row.hidden = !fits;
    if (fits) kept.add(key);
  }
  const lit = new Set(kept), parents = new Map(nodes.map((node) => [node.dataset.n, node.dataset.p]));
  for (const key of kept) for (let up = parents.get(key); up && !lit.has(up); up = parents.get(up)) lit.add(up);
  for (const node of nodes) node.classList.toggle("out", Boolean(any) && !(node.classList.contains("candidate") ? kept : lit).has(node.dataset.n));
  for (const point of $(".p[data-n]")) point.classList.toggle("out", Boolean(any) && !kept.has(point.dataset.n));
  byId("canvas").classList.toggle("filtered", Boolean(any));
  byId("matches").textContent = any ? `${kept.size} of ${rows.size} kernels` : "";
}

function pane() {
  const one = all[state.n];
  if (!one) return; // still being unpacked
  byId("detail-h").textContent = { root: "Reference", idea: "Idea", candidate: "Kernel" }[one.kind];
  byId("head").replaceChildren(...head(all, state.n));
  byId("peek").replaceChildren();
  put(byId("peek"), one.family ? [icon(one.family), " "] : "", el("b", null, named(all, state.n)), one.idea && all[one.idea] ? ` · ${all[one.idea].title}` : "", " ", el("a", { href: "#detail", "data-to": "detail" }, "look at it ↓"));
  for (const tab of $("[role=tab]")) {
    const here = tab.dataset.tab === state.tab;
    tab.setAttribute("aria-selected", String(here));
    tab.setAttribute("tabindex", here ? "0" : "-1");
  }
  byId("pane").setAttribute("aria-labelledby", `t-${state.tab}`);
  byId("pane").replaceChildren(...TABS[state.tab](all, state.n, { ...state, narrow: small.matches }, change));
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("a, button, [data-n]");
  if (!target) return;
  const { n, out, lang, tab, to } = target.dataset;
  if (target.classList.contains("chip") && (out || lang)) {
    const key = out ? "out" : "lang", value = out ?? lang, had = list(state[key]);
    change({ [key]: (had.includes(value) ? had.filter((one) => one !== value) : [...had, value]).join(",") });
  } else if (tab) change({ tab });
  else if (to) { event.preventDefault(); byId(to).scrollIntoView(); byId("detail-h").focus({ preventScroll: true }); }
  else if (n) {
    event.preventDefault();
    if (target.tagName === "TR" && String(getSelection())) return;
    change({ n, vs: "" });
    if (!target.closest("#canvas, #detail")) byId("detail").scrollIntoView();
  } else if (target.closest("#rows th")) sort(target.closest("th"));
});

// Up and down: the next one in the same column; left: what it hangs on; right: what hangs on it.
function walk(key) {
  const here = nodes.find((node) => node.dataset.n === state.n), left = (node) => node.transform.baseVal[0].matrix.e, top = (node) => node.transform.baseVal[0].matrix.f;
  if (!here) return;
  let to = null;
  if (key === "ArrowLeft") to = nodes.find((node) => node.dataset.n === here.dataset.p);
  else if (key === "ArrowRight") to = nodes.find((node) => node.dataset.p === here.dataset.n);
  else {
    const way = key === "ArrowDown" ? 1 : -1;
    const column = nodes.filter((node) => left(node) === left(here) && way * (top(node) - top(here)) > 0);
    to = column.sort((x, y) => way * (top(x) - top(y)))[0];
  }
  if (to) { change({ n: to.dataset.n, vs: "" }); to.focus({ preventScroll: true }); }
}

function step(by) {
  const at = kernelsOf.indexOf(state.n);
  change({ n: kernelsOf[Math.min(Math.max(at + by, 0), kernelsOf.length - 1)] ?? state.n, vs: "" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inside = event.target;
  if (inside.matches("input, select, textarea")) {
    if (event.key === "Escape") inside.blur();
    return;
  }
  const tabs = Object.keys(TABS);
  if (inside.closest("[role=tab]") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const to = tabs[(tabs.indexOf(state.tab) + (event.key === "ArrowRight" ? 1 : -1) + tabs.length) % tabs.length];
    change({ tab: to });
    byId(`t-${to}`).focus();
  } else if (inside.closest("#canvas") && event.key.startsWith("Arrow")) walk(event.key);
  else if (inside.closest("#canvas") && event.key === "Enter") byId("detail").scrollIntoView();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "b" && best) change({ n: best, vs: "" });
  else if (event.key === "/") byId("q").focus();
  else if (tabs[Number(event.key) - 1]) change({ tab: tabs[Number(event.key) - 1] });
  else return;
  event.preventDefault();
});

if (matchMedia("(hover: hover)").matches)
  document.addEventListener("pointermove", (event) => {
    const over = event.target instanceof Element && event.target.closest("#canvas .n, .p[data-n]");
    card(all, over ? over.dataset.n : "", event.clientX, event.clientY);
  }, { passive: true });

byId("q").addEventListener("input", (event) => change({ q: event.target.value }));
addEventListener("hashchange", show);
small.addEventListener("change", pane);

(async () => {
  all = await unpack(JSON.parse(byId("data").textContent));
  const body = document.querySelector("#rows tbody");
  for (const node of nodes) { node.setAttribute("role", "treeitem"); node.setAttribute("aria-label", said(all, node.dataset.n)); }
  body.append(...kernelsOf.map((key) => tableRow(all, key)).sort((x, y) => (y.cells[2].dataset.v || 0) - (x.cells[2].dataset.v || 0)));
  show();
  document.documentElement.dataset.ready = "";
})();
