// The grid: a row for each GPU or MIG instance, and the details below open rows.
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
const SCROLLS = 12; // a grid with more rows scrolls, so that the buttons stay in sight
const COMPACT = 16; // with more rows, each row is lower and shows one user
const MOST_USERS = 3;

class Grid {
  constructor(panel, store, say) {
    this.panel = panel;
    /** @type {Store} */
    this.store = store;
    this.say = say;
    /** @type {Map<string, RowView>} */
    this.rows = new Map(); // by key
    /** @type {Map<string, DetailView>} */
    this.details = new Map(); // by key
    this.sizes = new SizesView();
    this.overview = new Overview(panel, store, () => this.show(true));
    const attributes = { role: "grid", "aria-label": "GPUs", "aria-multiselectable": "true" };
    this.element = panel.appendChild(make("div", "gm-rows", attributes));
    this.headings = headings();
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
    // A click with Shift would select text.
    this.element.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
    // The width of the grid changes, or the width that it needs: a font is loaded, or a device is added.
    this.observer = new ResizeObserver(() => this.fit());
    for (const element of [this.element, ...this.sizes.element.children]) this.observer.observe(element);
    this.sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries)
        this.rows.get(/** @type {HTMLElement} */ (target).dataset.key)?.comeIntoSight(isIntersecting);
    });
  }

  show(isArranged = false) {
    const { store } = this;
    const keys = this.overview.show();
    // Rows keep their places while the pointer or the focus is on them.
    const isSettled =
      this.element.matches(":hover, :focus-within") &&
      keys.length === this.rows.size &&
      keys.every((key) => this.rows.has(key));
    if (isArranged || !isSettled) this.layOut(keys);
    const { marked } = store;
    const mostUsers = store.order.length > COMPACT ? 1 : MOST_USERS;
    for (const [key, view] of this.rows) {
      view.show(
        store.rows[key],
        store.history[key] ?? [],
        this.markOf(store.rows[key], marked.indexOf(key)),
        mostUsers,
      );
    }
    for (const view of this.details.values()) view.show();
  }

  // The name of a device in this kernel now, its name after the choice, and its place in the choice.
  markOf(row, place) {
    const { draft, header } = this.store;
    const applied = row.visible_as === "not visible" ? "" : row.visible_as;
    const chosen = place < 0 ? "" : `cuda:${place}`;
    // If the devices of the launch are unknown, it is also unknown which devices "reset" drops.
    const isKnown = draft !== null && (draft !== "reset" || header.launch_devices);
    let pending = "";
    if (chosen !== applied) pending = chosen;
    if (!chosen && isKnown && applied.startsWith("cuda:")) pending = " dropped";
    return { order: place < 0 ? "" : String(place), applied, pending, wasChosen: header.hides_devices };
  }

  // Shows rows for these devices in this order, with the details of open rows.
  layOut(keys) {
    if (keys.length && keys.join() === [...this.rows.keys()].join()) return; // keeps the scroll position
    /** @type {HTMLElement | null} */
    const focusedRow = document.activeElement?.closest("[data-key]");
    const focused = this.element.contains(focusedRow) ? focusedRow.dataset.key : undefined;
    const count = this.store.order.length;
    this.rows = viewsOf(this.rows, keys, (key) => new RowView(key));
    for (const key of this.details.keys()) if (!this.rows.has(key)) this.fold(key);
    this.element.classList.toggle("gm-scrolls", count > SCROLLS);
    this.element.classList.toggle("gm-compact", count > COMPACT);
    this.sizes.show(this.store.order.map((key) => this.store.rows[key]));
    this.arrange();
    this.sight.disconnect();
    for (const element of this.elements) this.sight.observe(element);
    if (keys.length && !this.tabStop) this.elements[0].tabIndex = 0;
    if (this.rows.has(focused)) this.focusOn(this.rows.get(focused).element);
  }

  arrange() {
    const below = (key) => (this.details.has(key) ? [this.details.get(key).element] : []);
    const rows = [...this.rows].flatMap(([key, { element }]) => [element, ...below(key)]);
    arrange(this.element, [this.sizes.element, this.headings, ...rows]);
  }

  // Picks the widest layout in which no necessary text is cut off. The needed width depends on the font.
  fit() {
    const widths = () => [this.element, ...this.sizes.element.children].map((one) => one.clientWidth).join();
    if (widths() === this.fitted) return; // only the height has changed
    for (const name of ["percent", "size"]) {
      const { width } = this.sizes.parts[name].getBoundingClientRect();
      this.element.style.setProperty(`--gm-${name}`, `${Math.ceil(width)}px`);
    }
    for (const layout of LAYOUTS) {
      this.panel.dataset.layout = layout;
      if (this.element.scrollWidth <= this.element.clientWidth) break;
    }
    this.fitted = widths();
  }

  close() {
    this.observer.disconnect();
    this.sight.disconnect();
  }

  get elements() {
    return [...this.rows.values()].map((view) => view.element);
  }

  // Tab reaches one row. The arrow keys move from there to other rows.
  get tabStop() {
    return this.element.querySelector('[tabindex="0"]');
  }

  focusOn(row) {
    for (const element of this.elements) element.tabIndex = element === row ? 0 : -1;
    row.focus();
  }

  toggleDetail(key) {
    if (this.details.has(key)) return this.fold(key);
    const view = new DetailView(this.rows.get(key), this.store);
    this.details.set(key, view);
    this.arrange();
    view.show();
    this.say(); // also requests the details
    // If the rows scroll, the details could be out of sight.
    if (this.rows.size > SCROLLS) view.element.scrollIntoView({ block: "nearest" });
  }

  fold(key) {
    const view = this.details.get(key);
    if (view.element.contains(document.activeElement)) this.rows.get(key)?.element.focus();
    view.close();
    this.details.delete(key);
    this.say();
  }

  click(event) {
    const row = event.target.closest(".gm-row");
    if (row && event.target.closest(".gm-chevron")) return this.toggleDetail(row.dataset.key);
    if (!row || this.store.isDead) return;
    this.focusOn(row);
    const { key } = row.dataset;
    // With Shift, add all rows from the last click to this one, as in a list of files.
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key, target } = event;
    if (target.closest(".gm-chevron") && (key === "Enter" || key === " ")) return; // a click follows
    const detail = target.closest(".gm-detail");
    const row = target.closest(".gm-row");
    const device = (detail ?? row)?.dataset.key;
    if (!device || !(detail ? this.pressInDetail(event, device) : this.pressInRow(event, row, device))) return;
    event.preventDefault();
    event.stopPropagation();
  }

  pressInDetail({ key }, device) {
    if (key !== "ArrowLeft" && key !== "Escape") return false;
    this.fold(device);
    return true;
  }

  // Right opens the details of a row, or focuses open ones. Left closes them. Returns whether a key was used.
  pressInRow({ key, repeat }, row, device) {
    const all = this.elements;
    const last = all.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    const open = this.details.get(device);
    if (key === "ArrowRight") open ? open.focus() : this.toggleDetail(device);
    else if (key === "ArrowLeft" && open) this.fold(device);
    else if (key in moves) this.focusOn(all[Math.min(last, Math.max(0, all.indexOf(row) + moves[key]))]);
    else if (key === " " || key === "Enter") repeat || this.store.isDead || this.store.toggle(device);
    else if (key === "Escape" && this.store.draft !== null) this.store.isDead || this.store.change(null);
    else return false;
    return true;
  }
}

// Screen readers need the headings, even if the panel is too narrow to show them.
function headings() {
  const row = make("div", "gm-headings", { role: "row" });
  row.append(make("i", "gm-box"));
  for (const [name, text] of Object.entries(COLUMNS))
    row.append(make("span", `gm-${name}`, { role: "columnheader" }, text));
  return row;
}

// The parts of a row, by name. The box is hidden from screen readers, because `aria-selected` says the same.
function makeParts(row, role = "") {
  /** @type {Record<string, HTMLElement>} */
  const parts = { box: row.appendChild(make("i", "gm-box", { "aria-hidden": "true" })) };
  for (const name of Object.keys(COLUMNS))
    parts[name] = row.appendChild(make("span", `gm-${name}`, role ? { role } : {}));
  parts.percent = parts.util.appendChild(make("span", "gm-percent"));
  parts.bar = parts.memory.appendChild(make("i", "gm-bar", { "aria-hidden": "true" }));
  parts.size = parts.memory.appendChild(make("span", "gm-size"));
  return parts;
}

class RowView {
  constructor(key) {
    this.key = key;
    this.isInSight = true; // until it is known
    this.element = makeFocusable("div", "gm-row", { role: "row", tabindex: "-1", "data-key": key });
    this.parts = makeParts(this.element, "gridcell");
    this.applied = this.parts.badge.appendChild(make("span", "gm-applied"));
    this.arrow = this.parts.badge.appendChild(make("span"));
    this.pending = this.parts.badge.appendChild(make("span", "gm-pending"));
    this.bars = ["mine", "others", "rest"].map((name) => this.parts.bar.appendChild(make("b", `gm-${name}`)));
    this.chart = new Chart();
    this.parts.util.append(this.chart.element);
    this.number = this.parts.label.appendChild(make("span"));
    // The button that opens the row. At the keyboard, the arrow keys open it.
    this.chevron = this.parts.label.appendChild(
      makeFocusable("button", "gm-chevron", {
        type: "button",
        tabindex: "-1",
        "aria-expanded": "false",
        "aria-disabled": "false", // even if the row can't be chosen
        "aria-label": "Details",
        title: "Details (→)",
      }),
    );
  }

  // The third argument is from `Grid.markOf`. There can be 64 rows, so figures out of sight are not written.
  show(row, samples, { order, applied, pending, wasChosen }, mostUsers) {
    const isChosen = order !== "";
    const classes = {
      "gm-chosen": isChosen,
      "gm-changes": pending !== "",
      "gm-implied": !isChosen && !wasChosen, // visible because nothing was chosen
      "gm-instance": row.parent,
      "gm-split": row.usage === "unknown" && row.visible_as === "",
      "gm-unavailable": row.unavailable,
    };
    const given = Object.keys(classes).filter((name) => classes[name]);
    setAttribute(this.element, "class", ["gm-row", `gm-${row.usage}`, ...given].join(" "));
    setAttribute(this.element, "aria-selected", String(isChosen));
    setAttribute(this.element, "aria-disabled", row.unavailable ? "true" : null);
    setAttribute(this.element, "title", row.unavailable || null);
    setAttribute(this.parts.box, "data-order", order);
    setText(this.applied, applied);
    setText(this.arrow, isChosen && applied && pending ? " → " : "");
    setText(this.pending, pending);
    setText(this.number, row.label);
    setText(this.parts.name, row.name.replace(/^NVIDIA /, ""));
    setAttribute(this.parts.name, "title", row.name);
    this.showUsers(row.users, mostUsers);
    this.row = row;
    this.samples = samples;
    if (this.isInSight) this.showFigures();
  }

  comeIntoSight(isInSight) {
    this.isInSight = isInSight;
    if (isInSight) this.showFigures();
  }

  showFigures() {
    const { row } = this;
    this.chart.draw(this.samples);
    setText(this.parts.size, row.total && usedOfTotal(row));
    const [mine, others, used] = row.shares;
    const widths = [mine, Math.min(others, 1000 - mine), Math.max(0, used - mine - others)];
    for (const [index, width] of widths.entries()) setAttribute(this.bars[index], "style", `width: ${width / 10}%`);
    setText(this.parts.percent, figure(row.utilization, "%"));
    setAttribute(this.parts.percent, "data-load", String(Math.ceil((row.utilization || 0) / 25))); // 0 to 4
    setText(this.parts.heat, [figure(row.temperature, "°C"), figure(row.power, "W")].filter(Boolean).join(" · "));
  }

  // Surplus users are kept for screen readers, and are visible while the row has the keyboard focus.
  showUsers(users, most) {
    const shown = users.length > most ? Math.max(1, most - 1) : users.length;
    const surplus = users.length - shown;
    const lines = users.map((user, index) => {
      const isOwn = user[4];
      const classes = [isOwn && "gm-own", index >= shown && "gm-surplus"];
      const element = make("span", classes.filter(Boolean).join(" "));
      const rest = make("i", "gm-rest");
      for (const [name, text] of userParts(user)) {
        // A name that is written from right to left is cut off at its end, too.
        const part = make("i", `gm-${name}`, name === "who" ? { dir: "auto" } : {}, text);
        (name === "held" || name === "since" ? rest : element).append(part);
      }
      if (rest.firstChild) element.append(rest);
      return element;
    });
    if (surplus) lines.push(make("span", "gm-more", { "aria-hidden": "true", "data-more": `+${surplus} more` }));
    const isThere =
      lines.length === this.parts.users.children.length &&
      lines.every((line, index) => line.isEqualNode(this.parts.users.children[index]));
    if (!isThere) this.parts.users.replaceChildren(...lines);
    const text = users.map(userText).join("\n");
    setAttribute(this.parts.users, "title", text);
    setAttribute(this.parts.users, "aria-label", `used by ${text}`); // the parts of a line alone are read with gaps
  }
}

// An invisible row. In any font, it is as wide as the text that must not be cut off in any row.
class SizesView {
  constructor() {
    this.element = make("div", "gm-sizes", { "aria-hidden": "true" });
    this.parts = makeParts(this.element);
    this.parts.util.append(make("span", "gm-plot"));
  }

  show(rows) {
    const longest = (texts) => texts.reduce((one, other) => (other.length > one.length ? other : one), "");
    const ordinal = String(rows.length - 1).replace(/\d/g, "0");
    const total = longest(rows.map((row) => row.total)).replace(/\d/g, "0");
    setText(this.parts.badge, `cuda:${ordinal} → cuda:${ordinal}`);
    setText(this.parts.label, longest(rows.map((row) => row.label)));
    setText(this.parts.name, longest(rows.map(tellingPart)));
    setText(this.parts.percent, "100 %");
    const isLarge = rows.some((row) => row.total.endsWith("TiB")); // then the used memory can be in GiB
    setText(this.parts.size, isLarge ? `000.0 GiB / ${total}` : `${total.replace(/ .*/, "")} / ${total}`);
    setText(this.parts.heat, "100 °C · 1000 W");
    setText(this.parts.users, "somebody…");
  }
}

// The part of a name that must be visible: for an instance, its profile and the beginning of its UUID.
function tellingPart({ name, parent }) {
  const text = name.replace(/^NVIDIA (GeForce )?/, "");
  return `${text.slice(0, parent ? text.indexOf("MIG-") + "MIG-0000".length : 8)}…`;
}

function figure(value, unit) {
  return value === "" ? "" : value === null ? "?" : `${value} ${unit}`;
}

// Formats memory in GiB as text.py does.
function sizeText(gib) {
  return Math.round(gib * 10) < 10240 ? `${gib.toFixed(1)} GiB` : `${(gib / 1024).toFixed(1)} TiB`;
}

// Used and total memory. A common unit appears once: `0.5 / 80.0 GiB`, `0.5 GiB / 16.0 TiB`.
function usedOfTotal({ used, total }) {
  if (used === null) return `? / ${total}`;
  const unit = total.endsWith("TiB") ? " TiB" : " GiB";
  return `${sizeText(used).replace(unit, "")} / ${total}`;
}

// Above the rows of many GPUs: the number of GPUs of each model, and switches that filter and sort the rows.
class Overview {
  constructor(panel, store, change) {
    this.store = store;
    this.element = panel.appendChild(make("div", "gm-overview"));
    this.models = this.element.appendChild(make("span"));
    this.controls = this.element.appendChild(make("span"));
    this.freeOnly = this.makeSwitch("free only", change);
    this.sorted = this.makeSwitch("most free memory first", change);
  }

  makeSwitch(text, change) {
    const label = this.controls.appendChild(make("label"));
    const box = label.appendChild(makeFocusable("input", "", { type: "checkbox" }));
    label.append(text);
    box.addEventListener("change", change);
    return box;
  }

  get isShown() {
    return this.store.order.length > COMPACT;
  }

  // Returns the keys of the rows to show, in their order.
  show() {
    this.element.hidden = !this.isShown;
    if (this.isShown) setText(this.models, countModels(this.store.order.map((key) => this.store.rows[key])));
    return this.arrange();
  }

  // A GPU and its instances stay together.
  arrange() {
    const { order } = this.store;
    if (!this.isShown || !(this.freeOnly.checked || this.sorted.checked)) return order;
    const groups = [...Map.groupBy(order, (key) => this.store.rows[key].parent || key).values()];
    if (this.sorted.checked) groups.sort((one, other) => this.mostFree(other) - this.mostFree(one));
    return this.freeOnly.checked ? groups.flatMap((group) => this.free(group)) : groups.flat();
  }

  // The free or marked devices of a GPU and its instances, with the GPU that they are on.
  free(group) {
    const marked = this.store.marked;
    const isFree = (key) => this.store.rows[key].usage === "free" && !this.store.rows[key].unavailable;
    const kept = group.filter((key) => isFree(key) || marked.includes(key));
    return group.filter((key) => kept.includes(key) || (kept.length && !this.store.rows[key].parent));
  }

  // In GiB; -1 if it is unknown or the devices can't be chosen.
  mostFree(group) {
    const free = ({ used, total_gib: total, unavailable }) =>
      used === null || total === null || unavailable ? -1 : total - used;
    return Math.max(...group.map((key) => free(this.store.rows[key])));
  }
}

// The number of devices of each model or kind of MIG instance, and how many of them are free.
function countModels(rows) {
  const models = Map.groupBy(
    rows.filter((row) => !row.unavailable),
    (row) => row.name.replace(/^NVIDIA (GeForce )?/, "").replace(/ MIG-.*/, ""),
  );
  const count = ([model, those]) =>
    `${those.length} × ${model}: ${those.filter((row) => row.usage === "free").length} free`;
  return [...models].map(count).join(" · ");
}
