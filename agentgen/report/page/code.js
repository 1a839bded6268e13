"use strict";
// Elements and highlighted source. Nothing here writes HTML: every text becomes a text node, by way of `put`.

const LONGEST_LINE = 1000, MOST_LINES = 6000;

function el(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  put(made, ...inside);
  return made;
}

function put(into, ...inside) {
  for (const one of inside.flat(Infinity)) {
    if (one instanceof Node) into.append(one);
    else if (one !== null && one !== undefined && one !== "") words(into, String(one));
  }
}

// Appends a text; characters that cannot be seen, or that turn others round, are spelt out and marked.
function words(into, text) {
  if (!UNSEEN.test(text)) { into.append(text); return; }
  let plain = "";
  for (const one of text) {
    if (!UNSEEN.test(one)) { plain += one; continue; }
    if (plain) into.append(plain);
    plain = "";
    const code = one.codePointAt(0);
    const mark = document.createElement("span");
    mark.className = "unseen";
    mark.textContent = code < 32 ? String.fromCodePoint(0x2400 + code)
      : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    into.append(mark);
  }
  if (plain) into.append(plain);
}

const PYTHON = new RegExp([
  /(?<comment>#[^\n]*)/, /(?<long>[rRbBfFuU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)))/,
  /(?<string>[rRbBfFuU]{0,2}(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/, /(?<special>@[\w.]+)/,
  /\b(?<word>def|class|return|import|from|as|for|in|if|elif|else|while|with|not|and|or|is|None|True|False|lambda|raise|try|except|finally|assert|pass|break|continue|yield|global|nonlocal|del|async|await)\b/,
  /\b(?<number>0[xX][\da-fA-F]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?)/, /(?<rest>\w+)/,
].map((one) => one.source).join("|"), "g");

const CPP = new RegExp([
  /(?<comment>\/\/[^\n]*|\/\*[^]*?(?:\*\/|$))/, /(?<special>^[ \t]*#[^\n]*|\b__\w+__\b|\b__\w+\b)/,
  /(?<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])+')/,
  /\b(?<word>alignas|asm|auto|bool|break|case|char|class|const|constexpr|continue|default|do|double|else|enum|extern|false|float|float2|float4|for|goto|half|if|inline|int|int2|int4|int8_t|int16_t|int32_t|int64_t|long|namespace|operator|private|public|register|restrict|return|short|signed|size_t|sizeof|static|static_cast|reinterpret_cast|struct|switch|template|this|true|typedef|typename|uint2|uint4|uint8_t|uint16_t|uint32_t|uint64_t|union|unsigned|using|void|volatile|while)\b/,
  /\b(?<number>0[xX][\da-fA-F]+[uUlL]*|\d[\d']*\.?\d*(?:[eE][+-]?\d+)?[fFuUlL]*)/, /(?<rest>\w+)/,
].map((one) => one.source).join("|"), "gm");

const CPP_ONLY = /#include|\b(?:__global__|__device__|extern|void|template|typedef)\b/;

// Returns pieces [class, text]. CUDA C++ and C++ lie inside long strings of the Python file.
function pieces(text, grammar, found) {
  let last = 0;
  for (const match of text.matchAll(grammar)) {
    if (match[0] === "") continue;
    if (match.index > last) found.push(["", text.slice(last, match.index)]);
    const kind = Object.keys(match.groups).find((key) => match.groups[key] !== undefined);
    if (kind === "long" && match[0].includes(";") && CPP_ONLY.test(match[0])) {
      const open = match[0].match(/^[a-zA-Z]{0,2}("""|''')/)[0], close = match[0].slice(open.length).endsWith(open.slice(-3));
      found.push(["string", open]);
      pieces(match[0].slice(open.length, close ? -3 : undefined), CPP, found);
      if (close) found.push(["string", open.slice(-3)]);
    } else found.push([kind === "rest" ? "" : kind === "long" ? "string" : kind, match[0]]);
    last = match.index + match[0].length;
  }
  if (last < text.length) found.push(["", text.slice(last)]);
  return found;
}

// Returns one list of pieces per line, lines that are too long cut.
function lines(source) {
  const found = [[]];
  let length = 0;
  for (const [kind, text] of pieces(source.replace(/\r\n/g, "\n"), PYTHON, []))
    text.split("\n").forEach((part, nth) => {
      if (nth) { found.push([]); length = 0; }
      if (part && length <= LONGEST_LINE) {
        const room = LONGEST_LINE - length, line = found[found.length - 1];
        line.push([kind, part.slice(0, room)]);
        if (part.length > room) line.push(["unseen", ` … ${(part.length - room).toLocaleString("en")} or more characters`]);
      }
      length += part.length;
    });
  return found;
}

function span(line) {
  return line.map(([kind, text]) => (kind ? el("span", { class: `c-${kind}` }, text) : el("span", null, text)));
}

function listing(source) {
  const all = lines(source), shown = all.slice(0, MOST_LINES);
  const body = el("code", null, shown.map((line) => el("span", { class: "line" }, span(line), "\n")));
  const cut = all.length - shown.length;
  return el("pre", { class: "code", tabindex: "0" }, body, cut > 0 ? `… ${cut} more lines` : "");
}

// A button that copies a text as it is.
function copying(text) {
  const copy = el("button", { type: "button", class: "chip" }, "copy");
  copy.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "copied"; } catch { copy.textContent = "the browser does not allow it"; }
  });
  return copy;
}

// A source, with a button that copies it, and what else is to stand beside that.
function whole(source, beside = "") {
  const odd = UNSEEN.test(source.replace(/\r\n/g, "\n"));
  return [el("p", { class: "bar" }, copying(source), beside, ` ${source.split("\n").length} lines`,
    odd ? el("b", { class: "warn" }, " has characters that cannot be seen; they are spelt out here") : ""), listing(source)];
}
