"use strict";
// Undoes `packing.py`: base 85, LZMA, a table of columns.

// Five letters for four bytes.
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%/()*+-;,=.?@^_`{|}~";

function plain(text) {
  const value = new Uint8Array(128), short = (5 - text.length % 5) % 5;
  [...LETTERS].forEach((letter, n) => { value[letter.charCodeAt(0)] = n; });
  const whole = text + "~".repeat(short), view = new DataView(new ArrayBuffer(whole.length / 5 * 4));
  for (let n = 0; n < whole.length; n += 5) {
    let word = 0;
    for (let m = 0; m < 5; m++) word = word * 85 + value[whole.charCodeAt(n + m)];
    view.setUint32(n / 5 * 4, word);
  }
  return new Uint8Array(view.buffer, 0, view.byteLength - short);
}

// LZMA as its specification has it (Pavlov), without a header, of a stream with lc = 4, lp = 0, pb = 0; it looks back
// into what it has made itself. Numbers are below 2^32, and exact.
const STATES = 12, MATCH = 0, REP = STATES, REP_0 = 2 * STATES, REP_1 = 3 * STATES, REP_2 = 4 * STATES, SHORT = 5 * STATES;
const SLOT = 6 * STATES, PLACE = SLOT + 4 * 64, ALIGN = PLACE + 128, LENGTH = ALIGN + 16, AGAIN = LENGTH + 2 + 8 + 8 + 256;
const LITERAL = AGAIN + 2 + 8 + 8 + 256;

function unlzma(input, size) {
  const out = new Uint8Array(size), odds = new Uint16Array(LITERAL + (0x300 << 4)).fill(1024);
  let at = 5, range = 2 ** 32 - 1, code = new DataView(input.buffer, input.byteOffset).getUint32(1), state = 0, n = 0;
  let last = 0, last1 = 0, last2 = 0, last3 = 0;

  function narrow() {
    if (range < 2 ** 24) { range *= 256; code = code * 256 + (input[at++] ?? 0); }
  }
  function bit(place) {
    const odd = odds[place], bound = (range >>> 11) * odd, one = code >= bound;
    if (one) { range -= bound; code -= bound; odds[place] = odd - (odd >> 5); }
    else { range = bound; odds[place] = odd + ((2048 - odd) >> 5); }
    narrow();
    return one ? 1 : 0;
  }
  function tree(place, bits) {
    let found = 1;
    for (let m = 0; m < bits; m++) found = 2 * found + bit(place + found);
    return found - 2 ** bits;
  }
  function reversed(place, bits) {
    let node = 1, found = 0;
    for (let m = 0; m < bits; m++) { const one = bit(place + node); node = 2 * node + one; found += one * 2 ** m; }
    return found;
  }
  function direct(bits) {
    let found = 0;
    for (let m = 0; m < bits; m++) {
      range = Math.floor(range / 2);
      const one = code >= range;
      if (one) code -= range;
      narrow();
      found = 2 * found + (one ? 1 : 0);
    }
    return found;
  }
  function length(place) {
    if (!bit(place)) return tree(place + 2, 3);
    return bit(place + 1) ? 16 + tree(place + 18, 8) : 8 + tree(place + 10, 3);
  }
  function distance(long) {
    const slot = tree(SLOT + 64 * Math.min(long, 3), 6), bits = (slot >> 1) - 1;
    if (slot < 4) return slot;
    const high = (2 + slot % 2) * 2 ** bits;
    return high + (slot < 14 ? reversed(PLACE + high - slot, bits) : 16 * direct(bits - 4) + reversed(ALIGN, 4));
  }
  function literal() {
    const place = LITERAL + 0x300 * ((n ? out[n - 1] : 0) >> 4);
    let found = 1;
    if (state > 6)
      for (let like = out[n - last - 1]; found < 256; like *= 2) {
        const wanted = (like >> 7) & 1, one = bit(place + 256 * (1 + wanted) + found);
        found = 2 * found + one;
        if (one !== wanted) break;
      }
    while (found < 256) found = 2 * found + bit(place + found);
    state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
    out[n++] = found;
  }

  // Brings one of the last four distances to the front; returns whether more than one letter is meant.
  function again() {
    if (!bit(REP_0 + state)) return bit(SHORT + state);
    if (!bit(REP_1 + state)) [last, last1] = [last1, last];
    else if (!bit(REP_2 + state)) [last, last1, last2] = [last2, last, last1];
    else [last, last1, last2, last3] = [last3, last, last1, last2];
    return 1;
  }

  while (n < size) {
    if (!bit(MATCH + state)) { literal(); continue; }
    let long = 1;
    if (!bit(REP + state)) {
      [last1, last2, last3] = [last, last1, last2];
      long = length(LENGTH);
      last = distance(long);
      long += 2;
      state = state < 7 ? 7 : 10;
    } else if (again()) {
      long = length(AGAIN) + 2;
      state = state < 7 ? 8 : 11;
    } else state = state < 7 ? 9 : 11;
    for (; long && n < size; long--, n++) out[n] = out[n - last - 1];
  }
  return out;
}

// Returns one record per key.
async function unpack({ way, bytes, text }) {
  const packed = plain(text);
  const whole = way === "lzma" ? new TextDecoder().decode(unlzma(packed, bytes))
    : await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const { key: keys, ...columns } = JSON.parse(whole), found = {};
  keys.forEach((key, n) => {
    found[key] = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[n]]).filter(([, value]) => value !== null));
  });
  return found;
}
