// The rows of a view that are open, and the details below them.
class Details {
  constructor(grid, store) {
    this.grid = grid;
    this.store = store;
    this.open = new Map(); // a DetailView for each, by key
  }

  toggle(key) {
    if (this.open.has(key)) this.fold(key);
    else this.unfold(key);
  }

  unfold(key) {
    const { chevron, element } = this.grid.rows.get(key);
    const view = new DetailView(key, this.store, chevron);
    this.open.set(key, view);
    element.after(view.element);
    view.show();
    this.say();
    // Where the rows scroll, it could be below their edge.
    if (this.grid.rows.size > SCROLLS) view.element.scrollIntoView({ block: "nearest" });
  }

  fold(key) {
    const view = this.open.get(key);
    if (view.element.contains(document.activeElement)) this.grid.focusOn(this.grid.rows.get(key).element);
    view.close();
    this.open.delete(key);
    if (!this.isOpenElsewhere(key)) this.store.details.delete(key);
    this.say();
  }

  isOpenElsewhere(key) {
    return [...this.store.views].some((view) => view.grid?.details.open.has(key));
  }

  // Tells the kernel which rows are open, and so asks for all of each.
  say() {
    if (this.view) this.store.send(pageMessage.setDetails(this.view, [...this.open.keys()]));
  }

  // Asks again, where a row is open; `view` is the name of this view, once the kernel knows it.
  ask(view = this.view) {
    this.view = view;
    if (this.open.size) this.say();
  }

  // Returns the elements of rows, each with its detail. Those of rows that have gone are dropped.
  below(rows) {
    const gone = [...this.open.keys()].filter((key) => !rows.has(key));
    for (const key of gone) {
      this.open.get(key).close();
      this.open.delete(key);
    }
    if (gone.length) this.say();
    return [...rows].flatMap(([key, { element }]) => (this.open.has(key) ? [element, this.open.get(key).element] : [element]));
  }

  show() {
    for (const view of this.open.values()) view.show();
  }

  // Right opens a row, and goes into what is open; Left closes it, also from within, as does Escape there.
  // Returns whether the key was one of these.
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    const { key, target } = event;
    if (target.closest(".gm-chevron") && (key === "Enter" || key === " ")) return true; // a click follows
    const detail = target.closest(".gm-detail");
    const device = (detail ?? target.closest(".gm-row"))?.dataset.key;
    const isOpen = this.open.has(device);
    if (key === "ArrowRight" && device && !detail) {
      if (isOpen) this.open.get(device).focus();
      else this.unfold(device);
    } else if (isOpen && (key === "ArrowLeft" || (detail && key === "Escape"))) {
      this.fold(device);
    } else {
      return Boolean(detail);
    }
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  close() {
    const wasOpen = this.open.size;
    this.open.clear();
    if (wasOpen) this.say();
  }
}

// The button that opens a row. By the keyboard it is the arrows that do.
function makeChevron() {
  return makeFocusable("button", "gm-chevron", {
    type: "button",
    tabindex: "-1",
    "aria-expanded": "false",
    "aria-disabled": "false", // also where its row can't be chosen
    "aria-label": "Details",
    title: "Details (→)",
  });
}
