"use strict";
// The difference of two sources, line by line: Myers' algorithm (1986), side by side or, where it is narrow, one below
// the other.

const MOST_STEPS = 3000, AROUND = 3;

// Returns pairs [i, j] of lines that are alike; null on a side that has no partner.
function compare(a, b) {
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const found = [];
  for (let i = 0; i < start; i++) found.push([i, i]);
  for (const [i, j] of middle(a.slice(start, a.length - end), b.slice(start, b.length - end)))
    found.push([i === null ? null : i + start, j === null ? null : j + start]);
  for (let i = end; i > 0; i--) found.push([a.length - i, b.length - i]);
  return found;
}

function middle(a, b) {
  const most = Math.min(a.length + b.length, MOST_STEPS), at = new Int32Array(2 * most + 3), trace = [];
  for (let d = 0; d <= most; d++) {
    trace.push(at.slice(most - d, most + d + 3));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && at[most + k] < at[most + k + 2]);
      let x = down ? at[most + k + 2] : at[most + k] + 1, y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      at[most + k + 1] = x;
      if (x >= a.length && y >= b.length) return back(a.length, b.length, trace);
    }
  }
  return [...a.map((_, i) => [i, null]), ...b.map((_, j) => [null, j])]; // too different to be worth the time
}

function back(x, y, trace) {
  const found = [];
  for (let d = trace.length - 1; d >= 0; d--) {
    const at = (k) => trace[d][k + d + 1], k = x - y;
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const before = down ? k + 1 : k - 1, fromX = d ? at(before) : 0, fromY = d ? fromX - before : 0;
    while (x > fromX && y > fromY) found.push([--x, --y]);
    if (d) found.push(down ? [null, --y] : [--x, null]);
  }
  return found.reverse();
}

// Puts removed and added lines of one change beside each other.
function beside(pairs) {
  const rows = [];
  let removed = [], added = [];
  const flush = () => {
    for (let n = 0; n < Math.max(removed.length, added.length); n++) rows.push([removed[n] ?? null, added[n] ?? null, true]);
    removed = []; added = [];
  };
  for (const [i, j] of pairs) {
    if (i === null) added.push(j);
    else if (j === null) removed.push(i);
    else { flush(); rows.push([i, j, false]); }
  }
  flush();
  return rows;
}

// The part in which two lines differ, marked.
function marked(line, other) {
  let start = 0, end = 0;
  while (start < line.length && start < other.length && line[start] === other[start]) start++;
  while (end < line.length - start && end < other.length - start && line.at(-1 - end) === other.at(-1 - end)) end++;
  const stop = line.length - end;
  if (stop - start > 0.8 * line.length) return [line];
  return [line.slice(0, start), el("mark", null, line.slice(start, stop)), line.slice(stop)];
}

function diff(before, after, narrow) {
  const whole = [lines(before), lines(after)], [a, b] = whole.map((all) => all.slice(0, MOST_LINES)), flat = (all) => all.map((line) => line.map(([, text]) => text).join(""));
  const textA = flat(a), textB = flat(b), rows = beside(compare(textA, textB));
  const near = new Uint8Array(rows.length + 1);
  rows.forEach(([, , changed], n) => {
    if (changed) near.fill(1, Math.max(0, n - AROUND), Math.min(rows.length, n + AROUND + 1));
  });
  const body = el("tbody");
  for (let n = 0; n < rows.length; n++) {
    let stop = n;
    while (stop < rows.length && !near[stop]) stop++;
    if (stop - n > 1) { body.append(fold(rows.slice(n, stop), narrow, a, b, textA, textB)); n = stop - 1; continue; }
    body.append(...draw(rows[n], narrow, a, b, textA, textB));
  }
  const columns = el("colgroup", null, (narrow ? ["no", ""] : ["no", "", "no", ""]).map((kind) => el("col", { class: kind })));
  const count = (side) => rows.filter((row) => row[2] && row[side] !== null).length;
  const left = whole[0].length + whole[1].length - a.length - b.length;
  const told = el("p", { class: "meta" }, `${count(0)} lines removed, ${count(1)} added, ${rows.length - rows.filter((row) => row[2]).length} alike${left ? `; the last ${left} lines are not compared` : ""}`);
  return [told, el("div", { class: "scroll" }, el("table", { class: "diff" }, columns, body))];
}

function draw([i, j, changed], narrow, a, b, textA, textB) {
  const both = i !== null && j !== null;
  const side = (n, lines, texts, other, kind) => n === null ? [el("td", { class: "no" }), el("td", { class: "none" })] : [
    el("td", { class: "no" }, String(n + 1)),
    el("td", { class: changed ? kind : "" }, changed && both ? marked(texts[n], other) : span(lines[n])),
  ];
  const left = side(i, a, textA, both ? textB[j] : "", "del"), right = side(j, b, textB, both ? textA[i] : "", "add");
  if (!narrow) return [el("tr", null, left, right)];
  if (!changed) return [el("tr", null, right)];
  return [i === null ? null : el("tr", null, left), j === null ? null : el("tr", null, right)].filter(Boolean);
}

function fold(rows, narrow, ...sides) {
  const button = el("button", { type: "button" }, `… ${rows.length} lines alike`);
  const row = el("tr", { class: "fold" }, el("td", { colspan: narrow ? "2" : "4" }, button));
  button.addEventListener("click", () => row.replaceWith(...rows.flatMap((one) => draw(one, narrow, ...sides))));
  return row;
}
