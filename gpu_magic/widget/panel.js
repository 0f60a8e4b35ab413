// A view of the panel: the header, the grid of rows, and the footer with the buttons.
// What is said of CUDA, or of ROCm.
const STATES = {
  absent: "not started",
  live: "not started",
  frozen: "started",
  forked: "unusable here",
  unknown: "can't be asked",
  unclear: "may be started",
  broken: "unusable here",
};
const stateText = ({ cuda_state, runtime }) => (cuda_state in STATES ? `${runtime} ${STATES[cuda_state]}` : cuda_state);
const UNWATCHED_TEXT = "paused, as nobody has used this page for ten minutes";
const USE_WORDS = { none: "Use none", reset: "Use as started" };

class PanelView {
  constructor(store, element) {
    this.store = store;
    this.build(element);
    this.visibility = new Visibility(element, store, (view) => this.grid.details.ask(view));
    this.timer = setInterval(() => this.checkSilence(), 1000);
    store.views.add(this);
    this.show(true);
  }

  build(element) {
    const { store } = this;
    element.classList.add("gm-view");
    // English, also in a page that is written from right to left.
    this.root = element.appendChild(make("section", "gm-panel", { "aria-label": "GPUs", dir: "ltr", lang: "en" }));
    const header = this.root.appendChild(make("header", "gm-head"));
    setText(header.appendChild(make("strong")), "GPUs");
    this.host = header.appendChild(make("span", "gm-host"));
    this.mark = header.appendChild(make("span", "gm-mark", { title: "These GPUs do not exist" }));
    this.stale = header.appendChild(make("span", "gm-stale"));
    this.state = header.appendChild(make("span", "gm-state"));
    this.banner = this.root.appendChild(make("p", "gm-banner", { role: "status" }));
    this.notes = this.root.appendChild(make("p", "gm-banner gm-notes"));
    this.empty = this.root.appendChild(make("p", "gm-empty"));
    this.grid = new Grid(this.root, store);
    this.footer = this.root.appendChild(make("footer", "gm-foot"));
    this.options = new MemoryOptions(this.root, store);
    this.buildLine();
    this.buildButtons();
    this.question = new RestartQuestion(this.footer, this.buttons, (request) => store.choose(true, request));
    this.notice = this.root.appendChild(make("p", "gm-said", { role: "status" }));
  }

  buildLine() {
    const parent = this.footer.appendChild(make("span", "gm-line"));
    this.line = parent.appendChild(make("code"));
    this.copy = parent.appendChild(makeFocusable("button", "gm-copy", { type: "button" }));
    this.copy.addEventListener("click", () => this.copyLine());
    setText(this.copy, "copy");
    this.insert = parent.appendChild(
      makeFocusable("button", "gm-copy", { type: "button", title: "Write this line into a cell of the notebook, for Restart and Run All" }),
    );
    this.insert.addEventListener("click", () => this.insertLine());
    setText(this.insert, "insert cell");
    this.options.makeButton(parent, "gm-copy");
    this.clear = parent.appendChild(makeFocusable("button", "gm-copy", { type: "button", title: "Drop what was clicked" }));
    this.clear.addEventListener("click", () => {
      this.store.setDraft(null);
      this.grid.tabStop?.focus(); // the button is gone
    });
    setText(this.clear, "clear");
    this.hint = parent.appendChild(make("span", "gm-hint", { role: "status" }));
  }

  buildButtons() {
    this.buttons = this.footer.appendChild(make("span", "gm-buttons"));
    const least = this.buttons.appendChild(make("span", "gm-least"));
    setText(least.appendChild(make("span")), "Pick");
    const button = (text, act, parent = this.buttons, className = "") => {
      const element = parent.appendChild(makeFocusable("button", className, { type: "button" }));
      setText(element, text);
      element.addEventListener("click", act);
      return element;
    };
    this.count = least.appendChild(
      makeFocusable("input", "", { type: "number", min: "1", value: "1", "aria-label": "How many of the least busy" }),
    );
    button("least busy", () => this.store.pickLeastBusy(this.howMany()), least).ariaLabel = "Pick the least busy";
    this.count.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation();
      this.store.pickLeastBusy(this.howMany());
    });
    button("None", () => this.store.setDraft("none"));
    button("Reset", () => this.store.setDraft("reset"));
    this.wait = new WaitControls(this.store, this.root, this.buttons);
    this.use = button("Use these", () => this.apply(), this.buttons, "gm-use");
  }

  apply() {
    const { store } = this;
    if (this.use.getAttribute("aria-disabled")) return;
    if (store.isFrozen && !store.isSame) this.question.ask(store.draft);
    else store.choose(false);
  }

  howMany() {
    return Math.floor(Number(this.count.value));
  }

  insertLine() {
    if (!writeLine(this.store.model, this.line.textContent)) return this.copyLine();
    acknowledge(this.insert, "inserted", "insert cell");
  }

  async copyLine() {
    try {
      await navigator.clipboard.writeText(this.line.textContent);
    } catch {
      // Pages without https have no clipboard: mark it, and copy what is marked.
      getSelection().selectAllChildren(this.line);
      document.execCommand("copy");
    }
    acknowledge(this.copy, "copied", "copy");
  }

  show(isNew = false) {
    const { store } = this;
    this.root.hidden = !store.isLive;
    if (store.isLive) hideFallback(store.model.get("key"));
    if (isNew) {
      this.grid.details.ask(); // what was known of them may be old
      this.grid.layOut();
    }
    this.showHeader();
    this.grid.show();
    this.showFooter();
  }

  showHeader() {
    const { header, isFrozen, isGone, isRestarting, order, rows } = this.store;
    const count = countFree(order.map((key) => rows[key]));
    setText(this.host, [count, header.host, header.driver, header.allotted].filter(Boolean).join(" · "));
    setText(this.mark, header.simulated && `SIMULATED ${header.simulated}`);
    setText(this.state, isRestarting ? "restarted" : isGone ? "no kernel" : stateText(header));
    this.state.dataset.state = isGone ? "unknown" : header.cuda_state;
    const why = `${header.runtime} was ${header.cuda_text}. A different choice needs a restart of the kernel; the next %load_ext gpu_magic applies it.`;
    setText(this.banner, isGone ? "" : isFrozen ? why : ["forked", "unclear", "broken"].includes(header.cuda_state) ? `${header.runtime} ${header.cuda_text}.` : "");
    this.root.classList.toggle("gm-none", !order.length);
    setText(this.empty, order.length ? "" : header.problem);
    setText(this.notes, [order.length ? header.problem : "", ...header.notes].filter(Boolean).join("\n"));
    this.showSilence();
  }

  checkSilence() {
    // A computer that was asleep asks at once, and not when it would have said again that it watches.
    if (this.store.isSilent && !this.wasDead) this.visibility.say();
    if (this.wasDead !== this.store.isDead) this.show();
    else this.showSilence();
    this.wasDead = this.store.isDead;
  }

  // Says why no figures come, where none do, and dims what nothing would answer.
  showSilence() {
    const { store, visibility } = this;
    const isPaused = visibility.state === "unwatched" && store.silence > SILENCE;
    const text = isPaused ? UNWATCHED_TEXT : store.isSilent ? `no figures for ${Math.round(store.silence / 1000)} s` : "";
    setText(this.stale, text);
    this.root.classList.toggle("gm-old", isPaused || store.isDead);
  }

  showFooter() {
    const { store } = this;
    this.count.max = String(Math.max(1, store.order.length));
    const request = store.draft ?? store.applied;
    this.options.show(request);
    setText(this.line, request ? `%gpus ${request}` : "%gpus");
    this.copy.hidden = !request;
    this.insert.hidden = !request || !findNotebook(store.model);
    this.clear.hidden = store.draft === null || store.isDead;
    if (this.question.request !== store.draft || store.isDead) this.question.close();
    const hasDevices = store.draft !== null && devicesOf(store.draft) !== "";
    const isWaiting = hasDevices && store.waitText;
    const hint = isWaiting ? "waiting" : hasDevices ? "not applied yet" : "click GPUs in the order you want them";
    setText(this.hint, request && store.draft === null ? "" : hint);
    const restarts = store.isFrozen && !store.isSame;
    const use = USE_WORDS[store.draft] ?? "Use these";
    setText(this.use, restarts ? `Restart kernel and ${use[0].toLowerCase()}${use.slice(1)}` : use);
    for (const control of this.root.querySelectorAll(":is(.gm-buttons, .gm-options) :is(button, input)")) {
      if (control !== this.use) control.disabled = store.isDead;
    }
    // A disabled button would lose the focus, and people at a keyboard their position.
    setAttribute(this.use, "aria-disabled", !hasDevices || store.isDead ? "true" : null);
    this.wait.show(this.use);
    const { text, kind, warnings } = store.said;
    if (this.notice.textContent !== text) {
      const lines = text.split(/(?<=\n)/).filter(Boolean); // each with its end
      const line = (one) => Object.assign(make("span", warnings?.includes(one.trimEnd()) ? "gm-warns" : ""), { textContent: one });
      this.notice.replaceChildren(...lines.map(line));
    }
    this.notice.dataset.kind = kind;
  }

  close() {
    this.visibility.close();
    this.grid.close();
    clearInterval(this.timer);
    this.store.views.delete(this);
    this.root.remove();
  }
}

// How many of the devices that this kernel may choose are free, and why it may not choose the others.
function countFree(rows) {
  const open = rows.filter((row) => !row.unavailable);
  const free = open.filter((row) => row.usage === "free");
  const lost = rows.filter((row) => row.usage === "problem").length;
  const notGiven = rows.filter((row) => row.visible_as === "not given" && row.usage !== "problem").length;
  const parts = [`${free.length} of ${open.length} free`];
  if (notGiven) parts.push(`${notGiven} not given`);
  if (lost) parts.push(`${lost} not answering`);
  return rows.length ? parts.join(", ") : "";
}

// Shows for a moment that a button has done what it is for.
function acknowledge(button, done, label) {
  setText(button, done);
  setTimeout(() => setText(button, label), 1500);
}

// The static fallback before the panel is for pages without a live one.
function hideFallback(key) {
  for (const fallback of document.querySelectorAll(".gm-fallback")) {
    if (fallback.dataset.widget !== key) continue;
    (fallback.closest(".jp-OutputArea-child") ?? fallback).style.display = "none";
  }
}

export default () => {
  let place;
  return {
    initialize({ model }) {
      place = new Place(model);
      return () => place.close();
    },
    render({ el }) {
      return place.render(el);
    },
    // Of our own, for the extension: the chip, with what a click on it does.
    chip({ el, open }) {
      return showView(new ChipView(place.store, el, open));
    },
  };
};
