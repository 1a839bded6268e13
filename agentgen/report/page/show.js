"use strict";
// What the page shows of the candidate or idea that is selected: one function per tab.

const MARKS = new Map([[true, ["ok", "ok"]], [false, ["FAILED", "bad"]], [null, ["–", "none"]]]);

function jump(key, text) {
  return el("a", { href: `#n=${key}`, "data-n": key }, text);
}

function icon(family) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", `mark ${family}`);
  made.setAttribute("viewBox", "-8 -8 16 16");
  made.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#s-${family}`);
  made.append(use);
  return made;
}

function named(all, key) {
  const one = all[key];
  return !one || one.kind === "root" ? "the reference" : one.kind === "idea" ? one.title
    : `kernel ${one.number} (${key}), ${one.language}, ${one.label}`;
}

// For those who listen.
function said(all, key) {
  const one = all[key];
  return one.kind === "idea" ? `idea: ${one.title}` : one.kind === "root" ? "the reference" : `${named(all, key)}: ${one.outcome}`;
}

function head(all, key) {
  const one = all[key];
  if (one.kind === "root") return [el("p", { class: "big" }, "The reference"), el("p", { class: "meta" }, "What is to be computed, as a torch module: the root of the tree.")];
  if (one.kind === "idea") return [el("p", { class: "big" }, one.title), el("p", { class: "meta" }, "idea, on ", jump(one.parent, named(all, one.parent)))];
  const idea = one.idea && all[one.idea];
  return [
    el("p", { class: "big" }, icon(one.family), ` kernel ${one.number} `, el("b", null, one.label), ` ${one.language}`,
      one.repair ? ` · repair ${one.repair}` : "", " ", el("small", null, one.outcome)),
    el("p", { class: "meta" }, `${one.id} · round ${one.round ?? "–"} · made from `, jump(one.parent, named(all, one.parent)),
      idea ? [" · idea: ", jump(one.idea, idea.title)] : ""),
  ];
}

function grid(table) {
  return [el("h3", null, table.title), el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, table.heads.map((one) => el("th", null, one)))),
    el("tbody", null, table.rows.map((row) => el("tr", null, row.map((cell) => el("td", null, cell)))))))];
}

function facts(rows) {
  return el("dl", { class: "facts" }, rows.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

function kernels(all, key) {
  const below = Object.entries(all).filter(([, one]) => one.parent === key || one.idea === key);
  if (!below.length) return [];
  return [el("h3", null, "What came of it"), el("ul", { class: "plain" }, below.map(([its, one]) =>
    el("li", null, one.family ? icon(one.family) : "◦", " ", jump(its, named(all, its)))))];
}

const TABS = {
  about(all, key) {
    const one = all[key], shown = [];
    if (one.reasons?.length) shown.push(el("div", { class: "reasons" }, one.reasons.map((text) => el("pre", null, text))));
    if (one.facts?.length) shown.push(facts(one.facts));
    if (one.reasoning) shown.push(el("h3", null, "Reasoning, before any code"), el("p", { class: "words" }, one.reasoning));
    else if (one.idea && all[one.idea]) shown.push(el("h3", null, "The idea"), el("p", { class: "words" }, all[one.idea].reasoning));
    shown.push(...kernels(all, key));
    const tables = (one.tables ?? []).map((table) => el("div", null, grid(table)));
    return [el("div", { class: "about" }, el("div", null, shown), tables.length ? el("div", { class: "tables" }, tables) : "")];
  },
  diff(all, key, state, change) {
    const one = all[key];
    if (!one.source) return [el("p", { class: "meta" }, "An idea has no source.")];
    const other = state.vs && all[state.vs]?.source ? state.vs : one.parent ?? "root";
    const choices = Object.entries(all).filter(([its, it]) => it.source && its !== key)
      .sort(([, x], [, y]) => (x.number ?? 0) - (y.number ?? 0));
    const select = el("select", { id: "vs" }, choices.map(([its]) => el("option", { value: its, selected: its === other },
      (its === one.parent ? "parent: " : "") + named(all, its))));
    select.addEventListener("change", () => change({ vs: select.value === one.parent ? "" : select.value }));
    return [el("p", { class: "bar" }, el("label", null, "from ", select), " to ", el("b", null, named(all, key))),
      ...(all[other] && other !== key ? diff(all[other].source, one.source, state.narrow) : [])];
  },
  source(all, key) {
    const one = all[key];
    if (!one.source) return [el("p", { class: "meta" }, "An idea has no source.")];
    return whole(one.source);
  },
  checks(all, key) {
    const checks = all[key].checks ?? [];
    if (!checks.length) return [el("p", { class: "meta" }, "Nothing was looked at.")];
    const order = [...checks].sort((x, y) => (x[1] === false ? 0 : 1) - (y[1] === false ? 0 : 1));
    const rows = order.map(([name, passed, evidence]) => {
      const [word, style] = MARKS.get(passed);
      return el("tr", null, el("td", { class: "nowrap" }, name), el("td", { class: style }, word), el("td", { class: "words" }, evidence));
    });
    return [el("table", { class: "checks" }, el("thead", null, el("tr", null, ["check", "", "evidence"].map((one) => el("th", null, one)))), el("tbody", null, rows)),
      el("p", { class: "note" }, "–: it decided nothing, it was skipped or only reports; the evidence says which.")];
  },
  log(all, key) {
    const log = all[key].log;
    return log ? [el("p", { class: "note" }, "What the candidate printed and raised last: shown, not trusted."), el("pre", { class: "code" }, log)]
      : [el("p", { class: "meta" }, "It printed nothing that was kept.")];
  },
};
