// The cells that this kernel has run in the last minutes, and what is said of each.
const LISTED = 20; // for screen readers

class CellTimes {
  constructor() {
    this.byId = new Map();
  }

  clear() {
    this.byId.clear();
  }

  take({ cells, is_all: isAll }) {
    if (isAll) this.clear();
    for (const array of cells) {
      const cell = unpackCell(array);
      this.byId.set(cell.id, cell);
    }
  }

  // Returns those that a chart shows whose latest sample is of `second`, in the order of their begins.
  latest(second) {
    for (const [id, { end }] of this.byId) {
      if (end !== null && end < second - SAMPLES) this.byId.delete(id);
    }
    const cells = [...this.byId.values()].sort((one, other) => one.begin - other.begin);
    // One cell at a time runs in the foreground: of another one, the message of its end was lost.
    let next = null;
    for (const cell of cells.filter(({ isBeside }) => !isBeside).reverse()) {
      if (next && cell.end === null) cell.end = next.begin;
      next = cell;
    }
    return cells;
  }
}

// Returns where cells are in a chart, in its samples, of which the latest is of `second` and stands at its end.
function placeCells(cells, second, length) {
  const placed = [];
  for (const cell of cells) {
    const from = Math.max(0, length + cell.begin - second);
    const to = Math.min(length, length + (cell.end ?? second) - second);
    if (from >= length || to <= 0) continue;
    placed.push({ from, to: Math.max(from, to), ...describe(cell, second), isOdd: cell.id % 2 !== 0, isBeside: cell.isBeside });
  }
  return placed;
}

function describe({ first, last, begin, end, isBeside }, second) {
  const isOne = first === last;
  const name = first === null ? "Unnumbered cell" : isOne ? `Cell ${first}` : `Cells ${first} to ${last}`;
  const time = durationText((end ?? Math.max(begin, second)) - begin);
  const label = first === null ? "" : isOne ? `[${first}]` : `[${first}–${last}]`;
  return { label, brief: `${label || "unnumbered"} ${time}`, text: `${name}${isBeside ? " in the background" : ""}, ${end === null ? "running for " : ""}${time}` };
}

function durationText(seconds) {
  if (seconds < 0.1) return "under 0.1 s";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// The cells as a list for screen readers, for which a chart is nothing: the latest first.
class CellList {
  constructor() {
    this.element = make("ul", "gm-detail-cells", { "aria-label": "Cells of the last three minutes" });
  }

  show(bands) {
    const texts = bands.map(({ text }) => text).reverse();
    const surplus = texts.length - LISTED;
    const shown = surplus > 0 ? [...texts.slice(0, LISTED), `and ${surplus} before`] : texts;
    const state = shown.join("\n");
    this.element.hidden = !shown.length;
    if (state === this.state) return;
    this.state = state;
    while (this.element.children.length > shown.length) this.element.lastChild.remove();
    shown.forEach((text, index) => setText(this.element.children[index] ?? this.element.appendChild(make("li")), text));
  }
}
