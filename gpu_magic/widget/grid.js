// The grid of rows: clicks, keys, and which row has the focus.
const COLUMNS = ["Here", "GPU", "Name", "Memory", "Last 3 minutes", "Heat · power", "Used by"];

class Grid {
  constructor(parent, store) {
    this.store = store;
    this.rows = new Map(); // a RowView for each device, by key
    this.element = parent.appendChild(
      make("div", "gm-rows", { role: "grid", "aria-label": "GPUs", "aria-multiselectable": "true" }),
    );
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
  }

  show() {
    const { store } = this;
    const marked = store.marked;
    for (const [key, view] of this.rows) {
      const ordinal = marked.indexOf(key);
      const badge = ordinal < 0 ? "" : `cuda:${ordinal}`;
      view.show(store.rows[key], store.figures[key], store.history[key] ?? [], badge, store.draft !== null);
    }
  }

  // Makes the rows anew where the devices are not those of before: a GPU was added, or split.
  layOut() {
    if (this.rows.size && this.store.order.join() === [...this.rows.keys()].join()) return; // they stay scrolled
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.rows = new Map(this.store.order.map((key) => [key, this.rows.get(key) ?? new RowView(key)]));
    this.element.replaceChildren(headings(), ...this.elements);
    if (this.rows.size && !this.tabStop) this.elements[0].tabIndex = 0;
    if (focused && this.rows.has(focused)) this.focusOn(this.rows.get(focused).element);
  }

  get elements() {
    return [...this.rows.values()].map((view) => view.element);
  }

  // One row at a time can be reached by Tab; the arrows go on from there.
  get tabStop() {
    return this.element.querySelector('[tabindex="0"]');
  }

  focusOn(row) {
    for (const element of this.elements) element.tabIndex = element === row ? 0 : -1;
    row.focus();
  }

  click(event) {
    const row = event.target.closest(".gm-row");
    if (!row || this.store.isDead) return;
    this.focusOn(row);
    this.store.toggle(row.dataset.key);
  }

  press(event) {
    const row = event.target.closest(".gm-row");
    const all = this.elements;
    const last = all.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " || event.key === "Enter") {
      if (!event.repeat && !this.store.isDead) this.store.toggle(row.dataset.key);
    } else if (event.key === "Escape" && this.store.draft !== null) {
      this.store.setDraft(null);
    } else if (event.key in moves) {
      this.focusOn(all[Math.min(last, Math.max(0, all.indexOf(row) + moves[event.key]))]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

// Screen readers need them, also where the panel is too narrow to show them.
function headings() {
  const row = make("div", "gm-headings", { role: "row" });
  for (const name of COLUMNS) setText(row.appendChild(make("span", "", { role: "columnheader" })), name);
  return row;
}
