// The grid of rows: its layout, clicks, keys, and which row has the focus.
const COLUMNS = {
  label: "GPU",
  name: "Name",
  badge: "Here",
  util: "Utilization",
  memory: "Memory",
  heat: "Heat · power",
  users: "Used by",
};
const LAYOUTS = ["wide", "medium", "narrow", "tiny"]; // see panel.css
const SCROLLS = 12; // rows above which they scroll, so that the buttons stay in sight
const COMPACT = 16; // rows above which they are lower, with one user each

class Grid {
  constructor(panel, store) {
    this.panel = panel;
    this.store = store;
    this.rows = new Map(); // a RowView for each device, by key
    this.sizes = new SizesView();
    this.overview = new Overview(panel, store, () => this.show(true));
    this.details = new Details(this, store);
    this.element = panel.appendChild(
      make("div", "gm-rows", { role: "grid", "aria-label": "GPUs", "aria-multiselectable": "true" }),
    );
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
    // A click with Shift would mark the text between.
    this.element.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
    // Its own width changes, or what it must have: a font is loaded, or a device is added.
    this.observer = new ResizeObserver(() => this.fit());
    for (const element of [this.element, ...this.sizes.element.children]) this.observer.observe(element);
    this.sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.rows.get(target.dataset.key)?.comeIntoSight(isIntersecting);
    });
  }

  show(isChanged = false) {
    const { store } = this;
    this.overview.show();
    // Rows keep their places while somebody is about to click, or reads them at the keyboard.
    if (isChanged || !this.element.matches(":hover, :focus-within")) this.layOut();
    const marked = store.marked;
    const mostUsers = store.order.length > COMPACT ? 1 : MOST_USERS;
    for (const [key, view] of this.rows) {
      const mark = this.markOf(store.rows[key], marked.indexOf(key));
      view.show(store.rows[key], store.figures[key], store.history[key] ?? [], mark, mostUsers);
    }
    this.details.show();
  }

  // What this kernel calls a device now, what it would be called, and its place among those that are chosen.
  markOf(row, place) {
    const { draft, header } = this.store;
    const applied = row.visible_as === "not visible" ? "" : row.visible_as;
    const chosen = place < 0 ? "" : `cuda:${place}`;
    // Where the devices of the launch are not known, neither is what "reset" drops.
    const isKnown = draft !== null && (draft !== "reset" || header.launch_devices);
    let pending = "";
    if (chosen !== applied) pending = chosen;
    if (!chosen && isKnown && applied.startsWith("cuda:")) pending = " dropped";
    return { order: place < 0 ? "" : String(place), applied, pending, wasChosen: header.hides_devices };
  }

  // Makes the rows anew where they are not those of before: a GPU was added or split, or they are arranged otherwise.
  layOut() {
    const keys = this.overview.arrange();
    if (this.rows.size && keys.join() === [...this.rows.keys()].join()) return; // they stay scrolled
    const focused = this.element.contains(document.activeElement) ? document.activeElement.closest("[data-key]")?.dataset.key : null;
    const count = this.store.order.length;
    this.rows = new Map(keys.map((key) => [key, this.rows.get(key) ?? new RowView(key)]));
    this.element.replaceChildren(this.sizes.element, headings(), ...this.details.below(this.rows));
    this.element.classList.toggle("gm-scrolls", count > SCROLLS);
    this.element.classList.toggle("gm-compact", count > COMPACT);
    this.sizes.show(this.store.order.map((key) => this.store.rows[key]));
    this.sight.disconnect();
    for (const element of this.elements) this.sight.observe(element);
    if (this.rows.size && !this.tabStop) this.elements[0].tabIndex = 0;
    if (focused && this.rows.has(focused)) this.focusOn(this.rows.get(focused).element);
  }

  // Takes the roomiest layout in which nothing is cut off that must not be: how wide that is depends on the font.
  fit() {
    const needed = [this.element, ...this.sizes.element.children].map((one) => one.clientWidth).join();
    if (needed === this.fitted) return; // it has become higher
    for (const name of ["percent", "size"]) {
      const { width } = this.sizes.parts[name].getBoundingClientRect();
      this.element.style.setProperty(`--gm-${name}`, `${Math.ceil(width)}px`);
    }
    for (const layout of LAYOUTS) {
      this.panel.dataset.layout = layout;
      if (this.element.scrollWidth <= this.element.clientWidth) break;
    }
    this.fitted = [this.element, ...this.sizes.element.children].map((one) => one.clientWidth).join();
  }

  close() {
    this.observer.disconnect();
    this.sight.disconnect();
    this.details.close();
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
    if (row && event.target.closest(".gm-chevron")) return this.details.toggle(row.dataset.key);
    if (!row || this.store.isDead) return;
    this.focusOn(row);
    const { key } = row.dataset;
    // With Shift, all between the last click and this one, as in a list of files.
    if (event.shiftKey && this.rows.has(this.clicked)) this.store.add(this.between(this.clicked, key));
    else this.store.toggle(key);
    this.clicked = key;
  }

  between(first, last) {
    const keys = [...this.rows.keys()];
    const [from, to] = [keys.indexOf(first), keys.indexOf(last)];
    return from <= to ? keys.slice(from, to + 1) : keys.slice(to, from + 1).reverse();
  }

  press(event) {
    if (this.details.press(event)) return;
    const row = event.target.closest(".gm-row");
    const all = this.elements;
    const last = all.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " || event.key === "Enter") {
      if (!event.repeat && !this.store.isDead) this.store.toggle(row.dataset.key);
    } else if (event.key === "Escape" && this.store.draft !== null) {
      if (!this.store.isDead) this.store.setDraft(null);
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
  row.append(make("i", "gm-box"));
  for (const [name, text] of Object.entries(COLUMNS)) {
    setText(row.appendChild(make("span", `gm-${name}`, { role: "columnheader" })), text);
  }
  return row;
}
