const STATES = {
  absent: "CUDA not started",
  live: "CUDA not started",
  frozen: "CUDA started",
  forked: "CUDA unusable here",
  unknown: "CUDA can't be asked",
};
const BEAT = 15000; // milliseconds after which a page says again that it shows the panel
const STALE = 20000; // without a word from the kernel, which says something every ten seconds
const COLUMNS = ["Here", "GPU", "Name", "Memory", "Last 3 minutes", "Heat · power", "Used by"];

class PanelView {
  constructor(store, element) {
    this.store = store;
    this.id = newPage();
    this.rows = new Map();
    this.isSeen = null;
    this.element = element;
    this.build(element);
    store.views.add(this);
    this.show(true);
    this.watch();
  }

  build(element) {
    this.root = element.appendChild(make("section", "gm-panel", { "aria-label": "GPUs" }));
    const header = this.root.appendChild(make("header", "gm-head"));
    setText(header.appendChild(make("strong")), "GPUs");
    this.host = header.appendChild(make("span", "gm-host"));
    this.mark = header.appendChild(make("span", "gm-mark"));
    this.stale = header.appendChild(make("span", "gm-stale"));
    this.state = header.appendChild(make("span", "gm-state"));
    this.banner = this.root.appendChild(make("p", "gm-banner", { role: "status" }));
    this.notes = this.root.appendChild(make("p", "gm-banner gm-notes"));
    this.grid = this.root.appendChild(
      make("div", "gm-rows", { role: "grid", "aria-label": "GPUs", "aria-multiselectable": "true" }),
    );
    this.grid.addEventListener("click", (event) => this.click(event));
    this.grid.addEventListener("keydown", (event) => this.press(event));
    this.footer = this.root.appendChild(make("footer", "gm-foot"));
    this.buildLine();
    this.buildButtons();
    this.buildQuestion();
    this.said = this.root.appendChild(make("p", "gm-said", { role: "status" }));
  }

  buildLine() {
    const place = this.footer.appendChild(make("span", "gm-line"));
    this.line = place.appendChild(make("code"));
    this.copy = place.appendChild(makeFocusable("button", "gm-copy", { type: "button" }));
    this.copy.addEventListener("click", () => this.copyLine());
    setText(this.copy, "copy");
    this.clear = place.appendChild(makeFocusable("button", "gm-copy", { type: "button", title: "Drop what was clicked" }));
    this.clear.addEventListener("click", () => {
      this.store.pick(null);
      this.grid.querySelector('[tabindex="0"]')?.focus(); // the button is gone
    });
    setText(this.clear, "clear");
    this.hint = place.appendChild(make("span", "gm-hint"));
  }

  buildButtons() {
    this.buttons = this.footer.appendChild(make("span", "gm-buttons"));
    const least = this.buttons.appendChild(make("span", "gm-least"));
    const button = (text, act, parent = this.buttons, className = "") => {
      const element = parent.appendChild(makeFocusable("button", className, { type: "button" }));
      setText(element, text);
      element.addEventListener("click", act);
      return element;
    };
    button("Least busy", () => this.store.pickLeastBusy(this.howMany()), least);
    this.count = least.appendChild(
      makeFocusable("input", "", { type: "number", min: "1", value: "1", "aria-label": "How many of the least busy" }),
    );
    this.count.addEventListener("change", () => this.store.pickLeastBusy(this.howMany()));
    button("None", () => this.store.pick("none"));
    button("Reset", () => this.store.pick("reset"));
    this.use = button("Use these", () => this.apply(), this.buttons, "gm-use");
  }

  buildQuestion() {
    this.question = this.footer.appendChild(make("span", "gm-question", { role: "alertdialog" }));
    this.question.hidden = true;
    this.asked = null;
    this.questionText = this.question.appendChild(make("span", "", { id: `gm-question-${this.id}` }));
    this.question.setAttribute("aria-labelledby", this.questionText.id);
    const yes = this.question.appendChild(makeFocusable("button", "gm-use", { type: "button" }));
    const no = this.question.appendChild(makeFocusable("button", "", { type: "button" }));
    setText(yes, "Restart");
    setText(no, "Cancel");
    yes.addEventListener("click", () => {
      const wanted = this.asked;
      this.ask(null);
      this.store.wish("restart", wanted);
    });
    no.addEventListener("click", () => this.ask(null));
    this.question.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.ask(null);
    });
  }

  // The question is about what stood there when it was asked; null closes it.
  ask(wanted) {
    const hadFocus = this.question.contains(document.activeElement);
    this.asked = wanted;
    this.question.hidden = wanted === null;
    this.buttons.hidden = wanted !== null;
    if (wanted !== null) {
      setText(this.questionText, `Restart the kernel for %gpus ${wanted}? Its variables are lost.`);
    }
    if (wanted !== null) this.question.lastElementChild.focus();
    else if (hadFocus) this.use.focus(); // and not where another panel has closed it
  }

  apply() {
    const { store } = this;
    if (this.use.getAttribute("aria-disabled")) return;
    if (store.isFrozen && !store.isSame) this.ask(store.draft);
    else store.wish("use");
  }

  howMany() {
    return Math.floor(Number(this.count.value));
  }

  async copyLine() {
    try {
      await navigator.clipboard.writeText(this.line.textContent);
    } catch {
      // Pages without https have no clipboard: mark it, and copy what is marked.
      getSelection().selectAllChildren(this.line);
      document.execCommand("copy");
    }
    setText(this.copy, "copied");
    setTimeout(() => setText(this.copy, "copy"), 1500);
  }

  click(event) {
    const row = event.target.closest(".gm-row");
    if (!row || this.store.isDead) return;
    this.focusOn(row);
    this.store.toggle(row.dataset.key);
  }

  press(event) {
    const row = event.target.closest(".gm-row");
    const all = [...this.rows.values()].map((view) => view.element);
    const last = all.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " || event.key === "Enter") {
      if (!event.repeat && !this.store.isDead) this.store.toggle(row.dataset.key);
    } else if (event.key === "Escape" && this.store.draft !== null) {
      this.store.pick(null);
    } else if (event.key in moves) {
      this.focusOn(all[Math.min(last, Math.max(0, all.indexOf(row) + moves[event.key]))]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // One row at a time can be reached by Tab; the arrows go on from there.
  focusOn(row) {
    for (const { element } of this.rows.values()) element.tabIndex = element === row ? 0 : -1;
    row.focus();
  }

  show(isNew = false) {
    const { store } = this;
    this.root.hidden = !store.isLive;
    if (store.isLive) hideTable(store.model.get("key"));
    if (isNew) this.lay();
    this.showHead();
    const marked = store.marked;
    for (const [key, view] of this.rows) {
      const place = marked.indexOf(key);
      const badge = place < 0 ? "" : `cuda:${place}`;
      view.show(store.rows[key], store.now[key], store.history[key] ?? [], badge, store);
    }
    this.showFoot();
  }

  // Lays the rows out anew where they are others than before: some GPU was added, or split.
  lay() {
    if (this.rows.size && this.store.order.join() === [...this.rows.keys()].join()) return; // they stay scrolled
    const focused = this.grid.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.rows = new Map(this.store.order.map((key) => [key, this.rows.get(key) ?? new RowView(key)]));
    this.grid.replaceChildren(headings(), ...[...this.rows.values()].map((view) => view.element));
    const [first] = this.rows.values();
    if (first && !this.grid.querySelector('[tabindex="0"]')) first.element.tabIndex = 0;
    if (focused && this.rows.has(focused)) this.focusOn(this.rows.get(focused).element);
    this.count.max = String(Math.max(1, this.rows.size));
  }

  showHead() {
    const { head, isFrozen, isGone, isRestarting, order, rows } = this.store;
    const free = order.filter((key) => rows[key].kind === "free" && !rows[key].why).length;
    setText(this.host, [`${free} of ${order.length} free`, head.host, head.driver].filter(Boolean).join(" · "));
    setText(this.mark, head.simulated ? `SIMULATED ${head.simulated}: these GPUs do not exist` : "");
    setText(this.state, isRestarting ? "restarted" : isGone ? "no kernel" : STATES[head.state] ?? head.state);
    this.state.dataset.state = isGone ? "unknown" : head.state;
    const why = `CUDA was ${head.cuda}. A different choice needs a restart of the kernel; the next %load_ext gpu_magic applies it.`;
    setText(this.banner, isGone ? "" : isFrozen ? why : head.state === "forked" ? `CUDA ${head.cuda}.` : "");
    setText(this.notes, [head.problem, ...head.notes].filter(Boolean).join("\n"));
    this.showStale();
  }

  showStale() {
    const silence = Date.now() - this.store.heardAt;
    const isStale = silence > STALE && this.isSeen && !this.store.isGone;
    setText(this.stale, isStale ? `no figures for ${Math.round(silence / 1000)} s` : "");
    this.root.classList.toggle("gm-old", isStale || this.store.isDead);
  }

  showFoot() {
    const { store } = this;
    const wanted = store.draft ?? (store.head.chosen ? store.present.join(",") || "none" : "");
    setText(this.line, wanted ? `%gpus ${wanted}` : "%gpus");
    this.copy.hidden = !wanted;
    this.clear.hidden = store.draft === null;
    if (this.asked !== null && (this.asked !== store.draft || store.isDead)) this.ask(null);
    const hint = store.draft ? "not applied yet" : "click GPUs in the order you want them";
    setText(this.hint, wanted && store.draft === null ? "" : hint);
    const restarts = store.isFrozen && !store.isSame;
    const these = WORDS[store.draft] ?? "Use these";
    setText(this.use, restarts ? `Restart kernel and ${these[0].toLowerCase()}${these.slice(1)}` : these);
    for (const control of this.buttons.querySelectorAll("button, input")) {
      if (control !== this.use) control.disabled = store.isDead;
    }
    // A button that is disabled loses the focus, and whoever works by keyboard with it.
    setAttribute(this.use, "aria-disabled", !store.draft || store.isDead ? "true" : null);
    setText(this.said, store.said.text);
    this.said.dataset.kind = store.said.kind;
  }

  // The kernel reads the machine while a page shows it, so it has to be told.
  watch() {
    this.look = () => this.see(document.visibilityState === "visible" && this.element.offsetParent !== null);
    this.sizes = new ResizeObserver(this.look); // a tab of the page that is put behind another has no size
    this.sizes.observe(this.element);
    document.addEventListener("visibilitychange", this.look);
    this.leave = () => this.see(false);
    addEventListener("pagehide", this.leave);
    this.beat = setInterval(() => this.isSeen && this.see(true, true), BEAT);
    this.clock = setInterval(() => this.showStale(), 1000);
  }

  see(isSeen, again = false) {
    if (isSeen === this.isSeen && !again) return;
    this.isSeen = isSeen;
    this.store.heardAt = Math.max(this.store.heardAt, isSeen && !again ? Date.now() : 0);
    if (this.store.isGone) return;
    this.store.ask({ do: "see", view: this.id, seen: isSeen, version: this.store.version });
  }

  close() {
    this.see(false);
    clearInterval(this.beat);
    clearInterval(this.clock);
    this.sizes.disconnect();
    document.removeEventListener("visibilitychange", this.look);
    removeEventListener("pagehide", this.leave);
    this.store.views.delete(this);
  }
}

// For those who can't see that a figure with a degree sign is a temperature.
function headings() {
  const row = make("div", "gm-headings", { role: "row" });
  for (const name of COLUMNS) setText(row.appendChild(make("span", "", { role: "columnheader" })), name);
  return row;
}

// The table that stands beside the panel is for pages without a live one.
function hideTable(key) {
  for (const table of document.querySelectorAll(".gm-instead")) {
    if (table.dataset.widget !== key) continue;
    (table.closest(".jp-OutputArea-child") ?? table).style.display = "none";
  }
}

export default () => {
  let store;
  return {
    initialize({ model }) {
      store = new Store(model);
    },
    render({ el }) {
      const view = new PanelView(store, el);
      return () => view.close();
    },
  };
};
