// A view of the panel: the header, the grid of rows, and the footer with the buttons.
// The state of CUDA or ROCm as text.
const STATES = {
  absent: "not started",
  live: "not started",
  frozen: "started",
  forked: "unusable here",
  unknown: "state unknown",
  unclear: "may have started",
  broken: "unusable here",
};
const stateText = ({ cuda_state, runtime }) => (cuda_state in STATES ? `${runtime} ${STATES[cuda_state]}` : cuda_state);
const UNWATCHED_TEXT = "paused: this page was not used for ten minutes";
const RUN_IN_VSCODE = " To run the cells above again after it, click Execute Above Cells in the toolbar of this cell.";
const USE_WORDS = { none: "Use none", reset: "Use as started" };

class PanelView {
  constructor(store, element) {
    this.store = store;
    this.build(element);
    this.visibility = new Visibility(element, store, () => [...this.grid.details.keys()]);
    this.timer = setInterval(() => this.checkSilence(), 1000);
    store.views.add(this);
    this.show();
  }

  build(element) {
    const { store } = this;
    element.classList.add("gm-view");
    // The panel is in English, also in a right-to-left page.
    this.root = element.appendChild(make("section", "gm-panel", { "aria-label": "GPUs", dir: "ltr", lang: "en" }));
    const header = this.root.appendChild(make("header", "gm-head"));
    header.append(make("strong", "", {}, "GPUs"));
    this.host = header.appendChild(make("span", "gm-host"));
    this.mark = header.appendChild(make("span", "gm-mark", { title: "These GPUs do not exist" }));
    this.stale = header.appendChild(make("span", "gm-stale"));
    this.state = header.appendChild(make("span", "gm-state"));
    this.banner = this.root.appendChild(make("p", "gm-banner", { role: "status" }));
    this.notes = this.root.appendChild(make("p", "gm-banner gm-notes"));
    this.empty = this.root.appendChild(make("p", "gm-empty"));
    this.grid = new Grid(this.root, store, () => this.visibility.say());
    this.footer = this.root.appendChild(make("footer", "gm-foot"));
    this.options = new ChoiceOptions(this.root, store);
    this.buildLine();
    this.buildButtons();
    this.question = new RestartQuestion(this.footer, this.buttons, (request) => store.choose(true, request));
    this.notice = this.root.appendChild(make("p", "gm-said", { role: "status" }));
  }

  // The line to type for the clicked choice, and buttons for this line.
  buildLine() {
    const line = this.footer.appendChild(make("span", "gm-line"));
    this.line = line.appendChild(make("code"));
    this.copy = line.appendChild(makeButton("copy", () => this.copyLine(), "gm-copy"));
    const title = "Insert this line as a cell of the notebook, for Restart and Run All";
    this.insert = line.appendChild(makeButton("insert cell", () => this.insertLine(), "gm-copy", { title }));
    line.append(this.options.button);
    const clear = () => {
      this.store.change(null);
      this.grid.tabStop?.focus(); // the button is gone
    };
    this.clear = line.appendChild(makeButton("clear", clear, "gm-copy", { title: "Discard what you clicked" }));
    this.hint = line.appendChild(make("span", "gm-hint", { role: "status" }));
  }

  buildButtons() {
    const { store } = this;
    this.buttons = this.footer.appendChild(make("span", "gm-buttons"));
    const least = this.buttons.appendChild(make("span", "gm-least"));
    const pick = () => store.pickLeastBusy(Math.floor(Number(this.count.value)));
    const label = { "aria-label": "How many of the least busy" };
    this.count = makeFocusable("input", "", { type: "number", min: "1", value: "1", ...label });
    onEnter(this.count, pick);
    const name = { "aria-label": "Pick the least busy" };
    least.append(make("span", "", {}, "Pick"), this.count, makeButton("least busy", pick, "", name));
    this.buttons.append(
      makeButton("None", () => store.change("none")),
      makeButton("Reset", () => store.change("reset")),
    );
    this.wait = new WaitControls(store, this.root, this.buttons);
    // The extension shows it and hears its clicks, because it alone can run cells (labextension/page/rerun.js).
    this.rerun = makeButton("Restart, and run the cells above again", () => {}, "gm-rerun");
    this.use = makeButton("Use these", () => this.apply(), "gm-use");
    this.buttons.appendChild(make("span", "gm-apply")).append(this.rerun, this.use);
  }

  apply() {
    const { store } = this;
    if (this.use.getAttribute("aria-disabled")) return;
    if (store.isFrozen && !store.isSame) this.question.ask(store.draft);
    else store.choose(false);
  }

  insertLine() {
    if (!writeLine(this.store.model, this.line.textContent, this.root)) return this.copyLine();
    acknowledge(this.insert, "inserted", "insert cell");
  }

  async copyLine() {
    try {
      await navigator.clipboard.writeText(this.line.textContent);
    } catch {
      // Pages without https have no clipboard: select the line, and copy the selection.
      getSelection().selectAllChildren(this.line);
      document.execCommand("copy");
    }
    acknowledge(this.copy, "copied", "copy");
  }

  show() {
    const { store } = this;
    this.root.hidden = !store.isLive;
    if (store.isLive) hideFallback(store.model.get("key"));
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
    const why = `${header.runtime} ${header.cuda_text}. Another choice needs a restart of the kernel. The next %load_ext gpu_magic applies it.`;
    setText(
      this.banner,
      isGone
        ? ""
        : isFrozen
          ? why
          : ["forked", "unclear", "broken"].includes(header.cuda_state)
            ? `${header.runtime} ${header.cuda_text}.`
            : "",
    );
    this.root.classList.toggle("gm-none", !order.length);
    setText(this.empty, order.length ? "" : header.problem);
    setText(this.notes, [order.length ? header.problem : "", ...header.notes].filter(Boolean).join("\n"));
    this.showSilence();
  }

  checkSilence() {
    // After the computer slept, ask at once instead of at the next regular report.
    if (this.store.isSilent && !this.wasDead) this.visibility.say();
    if (this.wasDead !== this.store.isDead) this.show();
    else this.showSilence();
    this.wasDead = this.store.isDead;
  }

  // If no figures arrive, says why, and dims the panel.
  showSilence() {
    const { store, visibility } = this;
    const isPaused = visibility.state === "unwatched" && store.isOverdue;
    const seconds = Math.round(store.silence / 1000);
    const isOld = store.isUnheard && store.silence > SILENCE;
    const ageText = isOld ? `figures are ${seconds} s old while a cell runs` : "";
    const text = isPaused ? UNWATCHED_TEXT : store.isSilent ? `no figures for ${seconds} s` : ageText;
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
    const hasDevices = store.draft !== null && splitRequest(store.draft).devices !== "";
    const hint =
      hasDevices && store.isWaiting
        ? "waiting"
        : hasDevices
          ? "not applied yet"
          : "click GPUs in the order you want them";
    setText(this.hint, request && store.draft === null ? "" : hint);
    const restarts = store.isFrozen && !store.isSame;
    const use = USE_WORDS[store.draft] ?? "Use these";
    this.rerun.hidden = !restarts || !hasDevices || store.isDead;
    setAttribute(this.rerun, "data-request", store.draft);
    setText(this.use, restarts ? `Restart kernel and ${use[0].toLowerCase()}${use.slice(1)}` : use);
    for (const control of this.root.querySelectorAll(":is(.gm-buttons, .gm-options) :is(button, input)")) {
      if (control !== this.use) control.disabled = store.isDead;
    }
    // A disabled button would lose the focus, and keyboard users their position.
    setAttribute(this.use, "aria-disabled", !hasDevices || store.isDead ? "true" : null);
    this.wait.show(this.use);
    const { text, kind, warnings } = store.shownNotice;
    if (this.notice.textContent !== text) {
      const lines = text.split(/(?<=\n)/).filter(Boolean); // each with its line end
      const line = (one) => make("span", warnings?.includes(one.trimEnd()) ? "gm-warns" : "", {}, one);
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

// The number of free devices among those that this kernel may choose, and why it may not choose the others.
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

// Shows for a moment that a button has worked.
function acknowledge(button, done, label) {
  setText(button, done);
  setTimeout(() => setText(button, label), 1500);
}

// Hides the static fallback before the panel, which is for pages without a live panel.
function hideFallback(key) {
  /** @type {NodeListOf<HTMLElement>} */
  const fallbacks = document.querySelectorAll(".gm-fallback");
  for (const fallback of fallbacks) {
    if (fallback.dataset.widget !== key) continue;
    /** @type {HTMLElement | null} */
    const output = fallback.closest(".jp-OutputArea-child");
    (output ?? fallback).style.display = "none";
  }
}

// Calls a function at Enter in a field, which must not trigger the notebook's shortcuts.
function onEnter(field, act) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

// The question before a restart. It applies to the choice at the time of the question, not to later clicks.
class RestartQuestion {
  // Hides the buttons during the question. The button "Restart" calls `restart` with the request.
  constructor(footer, buttons, restart) {
    this.buttons = buttons;
    this.request = null; // the request in question; null: none
    this.element = footer.appendChild(make("span", "gm-question", { role: "alertdialog" }));
    this.element.hidden = true;
    this.text = this.element.appendChild(make("span", "", { id: `gm-question-${makeName()}` }));
    this.element.setAttribute("aria-labelledby", this.text.id);
    const yes = () => {
      const { request } = this;
      this.close();
      restart(request);
    };
    this.element.append(
      makeButton("Restart", yes, "gm-use"),
      makeButton("Cancel", () => this.close()),
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  ask(request) {
    this.request = request;
    const then = "vscodeThemeKind" in document.body.dataset ? RUN_IN_VSCODE : "";
    setText(this.text, `Restart the kernel for %gpus ${request}? Its variables are lost.${then}`);
    this.element.hidden = false;
    this.buttons.hidden = true;
    this.element.lastElementChild.focus();
  }

  close() {
    if (this.request === null) return;
    const hadFocus = this.element.contains(document.activeElement);
    this.request = null;
    this.element.hidden = true;
    this.buttons.hidden = false;
    if (hadFocus) this.buttons.querySelector(".gm-use").focus(); // not if another panel closed the question
  }
}

// Waits for clicked GPUs that another process uses or has claimed. A line shows the holders, with "Cancel".
class WaitControls {
  constructor(store, panel, buttons) {
    this.store = store;
    const title = "Choose these GPUs as soon as they are free";
    this.begin = buttons.appendChild(makeButton("Wait for it", () => store.wait(), "gm-begin", { title }));
    this.element = panel.appendChild(make("div", "gm-wait", { role: "group", "aria-label": "Waiting" }));
    // No live region, because the line changes with each look. The hint says that the kernel waits.
    this.text = this.element.appendChild(make("span"));
    const label = { "aria-label": "Cancel the waiting" };
    this.cancel = this.element.appendChild(makeButton("Cancel", () => store.stopWaiting(), "", label));
  }

  // If the focused button is hidden, the focus moves to the other one, or to `use` if both are hidden.
  show(use) {
    const { store, begin, cancel } = this;
    const focused = [begin, cancel].find((one) => one === document.activeElement);
    const held = store.held.length;
    setText(begin, held === 1 ? "Wait for it" : "Wait for them");
    begin.hidden = !held || store.isFrozen || store.isWaiting;
    this.element.hidden = !store.waitText;
    setText(this.text, store.waitText);
    cancel.disabled = store.isDead;
    const isSeen = (one) => !one.closest("[hidden]");
    if (focused && !isSeen(focused)) [begin, cancel, use].find(isSeen)?.focus();
  }
}

// A control for each option of a choice that has a place in the panel. Shown on request, or if an option is set.
class ChoiceOptions {
  constructor(panel, store) {
    this.store = store;
    this.element = panel.appendChild(make("div", "gm-options", { id: `gm-options-${makeName()}`, role: "group" }));
    this.element.setAttribute("aria-label", "Options");
    this.element.hidden = true;
    this.shown = {};
    this.inputs = OPTIONS.map((option) => [option, this.build(option)]);
    const toggle = () => {
      this.element.hidden = !this.element.hidden;
      setAttribute(this.button, "aria-expanded", String(!this.element.hidden));
    };
    const attributes = { "aria-controls": this.element.id, "aria-expanded": "false" };
    this.button = makeButton("options", toggle, "gm-copy", attributes); // shows the options
  }

  build(option) {
    const label = this.element.appendChild(make("label", "", { title: option.help }));
    const text = { type: "text", placeholder: option.example, size: "7", spellcheck: "false" };
    const input = makeFocusable("input", "", option.is_flag ? { type: "checkbox" } : text);
    const name = option.name.slice("--".length).replaceAll("-", " ");
    label.append(...(option.is_flag ? [input, name] : [name, input]));
    input.addEventListener("change", () => this.set(option, input));
    if (!option.is_flag) onEnter(input, () => this.set(option, input));
    return input;
  }

  set(option, input) {
    const value = option.is_flag ? input.checked : input.value.trim().replace(/\s+/g, option.is_size ? "" : " ");
    if (value === this.shown[option.name]) return;
    const isWrong = option.is_size && value && !/^\d+(\.\d+)?([KMGT]i?)?B?$/i.test(value);
    if (isWrong) return this.store.warn(`${input.value} is not a size. Try 8GB or 8GiB`);
    this.store.setOption(option, value);
  }

  // Does not overwrite a value that is being typed.
  show(request) {
    const { options } = splitRequest(request);
    for (const [{ name, is_flag: isFlag }, input] of this.inputs) {
      const value = options[name] ?? (isFlag ? false : "");
      if (value === this.shown[name]) continue;
      this.shown[name] = value;
      if (isFlag) input.checked = value;
      else input.value = value;
      if (value && this.element.hidden) this.button.click();
    }
  }
}
