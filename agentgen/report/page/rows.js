"use strict";
// What is read out of the page's data: the table of all kernels, and the card at the pointer.

// The speedup counts by its lower end, as everywhere.
function tableRow(all, key) {
  const one = all[key], idea = one.idea ? all[one.idea].title : "–", number = (text, value) => el("td", { class: "num", "data-v": value ?? "" }, text ?? "–");
  return el("tr", { "data-n": key },
    number(one.number, one.number), el("td", { class: "nowrap" }, jump(key, key)), number(one.speedup, one.low),
    number(one.median, one.us), number(one.roofline, parseFloat(one.roofline) || null), el("td", null, one.language),
    el("td", { class: "nowrap" }, icon(one.family), one.outcome),
    el("td", { class: "idea" }, (one.repair ? `repair ${one.repair}: ` : "") + idea), el("td", { class: "reason" }, one.reason ?? ""));
}

function sort(head) {
  const nth = [...head.parentNode.children].indexOf(head), way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const one of head.parentNode.children) one.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
  const value = (row) => row.cells[nth].dataset.v ?? row.cells[nth].textContent, body = document.querySelector("#rows tbody");
  const order = (x, y) => {
    const a = value(x), b = value(y);
    if (a === "" || b === "") return (a === "") - (b === ""); // what was not measured stays last
    return way * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  };
  body.append(...[...body.rows].sort(order));
}

// Shows what a node or a point stands for, beside the pointer or the node that has the focus.
function card(all, key, x, y) {
  const box = document.getElementById("card"), one = key && all[key];
  box.hidden = !one || one.kind === "root";
  if (box.hidden) return;
  box.replaceChildren();
  if (one.kind === "idea") put(box, el("b", null, one.title), facts(one.facts));
  else {
    const rows = [["median", one.median], ["speedup", one.speedup], ["roofline", one.roofline]].filter(([, value]) => value && value !== "–");
    put(box, el("p", null, icon(one.family), el("b", null, `kernel ${one.number} `), `${one.language} · ${one.outcome}`),
      one.reason ? el("p", { class: "reason" }, one.reason) : "", rows.length ? facts(rows) : "",
      one.idea ? el("p", { class: "meta" }, all[one.idea].title) : "");
  }
  const size = box.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(x + 16, innerWidth - size.width - 12))}px`;
  box.style.top = `${y + 18 + size.height > innerHeight ? Math.max(8, y - size.height - 14) : y + 18}px`;
}
