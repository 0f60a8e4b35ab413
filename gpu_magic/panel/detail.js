// The details below an open row: figures over time, processes, and this kernel's variables on the device.
class DetailView {
  constructor({ key, element: row, chevron }, store) {
    this.key = key;
    /** @type {Store} */
    this.store = store;
    this.chevron = chevron;
    // A row of the grid with one cell, because a grid may contain only rows and cells.
    this.element = make("div", "gm-detail", { role: "row", "data-key": key });
    const id = `gm-detail-${makeName()}`;
    const columns = String(Object.keys(COLUMNS).length);
    this.cell = this.element.appendChild(
      make("div", "gm-detail-cell", { role: "gridcell", id, "aria-colspan": columns }),
    );
    const figures = this.cell.appendChild(make("div", "gm-detail-figures"));
    this.util = new FigureView("Utilization", new Chart(56));
    const size = (share) => sizeText((share / 1000) * this.total);
    this.memory = new FigureView("Memory", new Chart(56, 1000, size), "gm-detail-memory");
    this.power = make("p", "gm-detail-power");
    this.power.append(make("span", "gm-detail-title", {}, "Power"), make("span"), make("span", "gm-detail-slow"));
    figures.append(this.util.element, this.memory.element, this.power);
    const lists = this.cell.appendChild(make("div", "gm-detail-lists"));
    this.processes = new ProcessList(store, () => row.focus());
    this.variables = new VariableList(store);
    lists.append(this.processes.element, this.variables.element);
    setAttribute(chevron, "aria-expanded", "true");
    setAttribute(chevron, "aria-controls", id);
  }

  show() {
    const { key, store } = this;
    const row = store.rows[key];
    const detail = store.details[key] ?? {};
    setAttribute(this.cell, "aria-label", `Details of ${row.parent ? row.name : `GPU ${row.label}`}`);
    // An instance has no utilization, and a lost GPU has no figures.
    const samples = store.history[key] ?? [];
    this.util.element.hidden = row.parent || !samples.some((value) => value !== null);
    this.util.show(figure(row.utilization, "%"), samples);
    this.total = row.total_gib;
    this.memory.element.hidden = !detail.memory?.some((value) => value !== null) || this.total === null;
    this.memory.show(usedOfTotal(row), detail.memory ?? []);
    this.showPower(row, detail);
    this.processes.show(row, detail);
    this.variables.show(detail);
  }

  // Omits figures that the driver does not give.
  showPower({ power }, { power_limit: limit, slowdowns }) {
    const isKnown = typeof limit === "number";
    const text = typeof power === "number" && isKnown ? `${power} of ${limit} W` : isKnown ? `at most ${limit} W` : "";
    const slow = slowdowns?.length ? `slowed down: ${slowdowns.join(", ")}` : "";
    const [title, figures, reasons] = this.power.children;
    title.hidden = !text;
    setText(figures, text);
    setText(reasons, slow);
    this.power.hidden = !text && !slow;
  }

  // Focuses the first visible button.
  focus() {
    this.cell.querySelector("button:not(:disabled, [hidden], [hidden] *)")?.focus();
  }

  close() {
    this.element.remove();
    setAttribute(this.chevron, "aria-expanded", "false");
    setAttribute(this.chevron, "aria-controls", null);
  }
}

// A chart, with its name and its latest value above, and its time span below.
class FigureView {
  constructor(title, chart, className = "") {
    this.chart = chart;
    this.element = make("div", `gm-figure ${className}`.trim());
    const caption = this.element.appendChild(make("p", "gm-detail-caption"));
    caption.append(make("span", "gm-detail-title", {}, title));
    this.value = caption.appendChild(make("span", "gm-detail-value"));
    this.element.append(chart.element);
    const axis = this.element.appendChild(make("p", "gm-detail-axis", { "aria-hidden": "true" }));
    this.times = ["", ""].map(() => axis.appendChild(make("span")));
  }

  show(value, samples) {
    setText(this.value, value);
    this.chart.draw(samples);
    // The chart fills from the left. Once it is full, it drops the oldest sample.
    const isFull = samples.length >= SAMPLES;
    setText(this.times[0], isFull ? "3 min ago" : "");
    setText(this.times[1], isFull ? "now" : "");
  }
}

// A list with its name above and a note below.
function makeList(title, className) {
  const id = `gm-list-${makeName()}`;
  const element = make("div", className);
  element.append(make("p", "gm-detail-title", { id }, title));
  const list = element.appendChild(make("ul", "", { "aria-labelledby": id }));
  const note = element.appendChild(make("p", "gm-detail-note"));
  return { element, list, note };
}

// This kernel's variables on a GPU, and the button that frees memory that no variable holds.
class VariableList {
  constructor(store) {
    const { element, list, note } = makeList("Variables of this kernel", "gm-detail-variables");
    this.element = element;
    this.list = list;
    this.note = note;
    /** @type {Store} */
    this.store = store;
    this.items = new Map();
    const title = "Does what %gpu_free does, on all GPUs";
    this.free = this.element.appendChild(
      makeButton("Free what can be freed", () => store.free(), "gm-quiet", { title }),
    );
  }

  show({ variables, processes }) {
    const isHere = processes?.some(({ whose }) => whose); // according to the driver
    this.element.hidden = !(variables?.largest.length || variables?.parked || (variables && isHere));
    this.free.disabled = this.store.isDead;
    if (!variables) return;
    const { largest, more, unfinished, parked } = variables;
    this.list.hidden = !largest.length;
    // By position, because shortened names can be equal. Items stay, because their text could be selected.
    this.items = viewsOf(this.items, [...largest.keys()], () => {
      const item = make("li");
      item.append(make("span", "gm-detail-name"), make("span", "gm-detail-size"));
      return item;
    });
    arrange(this.list, [...this.items.values()]);
    for (const [index, [name, size]] of largest.entries()) {
      const [nameElement, sizeElement] = this.items.get(index).children;
      setText(nameElement, name);
      setAttribute(nameElement, "title", name);
      setText(sizeElement, size);
    }
    const notes = more ? [`and ${more} more`] : [];
    if (parked) notes.push(`${parked} parked`);
    if (!largest.length && !parked) notes.push(unfinished ? "none found so far" : "none here");
    else if (unfinished) notes.push("not all were looked at");
    setText(this.note, notes.join("; "));
  }
}

// The processes on a GPU. Users can end their own processes with TERM, or with KILL if TERM did not end them.
class ProcessList {
  // If the process with the focus has ended, `leave` moves the focus.
  constructor(store, leave) {
    const { element, list, note } = makeList("Processes", "gm-detail-processes");
    this.element = element;
    this.list = list;
    this.note = note;
    /** @type {Store} */
    this.store = store;
    this.leave = leave;
    this.views = new Map();
  }

  show(row, { processes = [], is_listed: isListed }) {
    const found = new Map(processes.map((one) => [`${one.pid}/${one.started}`, one])); // by PID and start
    const focused = this.list.contains(document.activeElement);
    this.views = viewsOf(this.views, [...found.keys()], () => new ProcessView(this.store));
    for (const [name, view] of this.views) view.show(found.get(name));
    arrange(
      this.list,
      [...this.views.values()].map(({ element }) => element),
    );
    if (focused && !this.list.contains(document.activeElement)) this.leave();
    this.list.hidden = !found.size;
    // Without processes, the note says why: the GPU is free or lost, or its users are unknown.
    const isNone = isListed && row.usage === "free";
    setText(
      this.note,
      found.size || isListed === undefined ? "" : isNone ? "none" : row.users.map(userText).join("\n"),
    );
  }
}

class ProcessView {
  constructor(store) {
    this.store = store;
    this.element = make("li", "gm-process");
    this.title = this.element.appendChild(make("span", "gm-detail-name"));
    this.memory = this.element.appendChild(make("span", "gm-detail-size"));
    const facts = this.element.appendChild(make("span", "gm-process-facts"));
    this.mark = facts.appendChild(make("span", "gm-own"));
    this.about = facts.appendChild(make("span"));
    this.button = this.element.appendChild(makeButton("End", () => this.ask(), "gm-quiet gm-end"));
  }

  show(process) {
    this.process = process;
    // A disabled button would lose the focus.
    setAttribute(this.button, "aria-disabled", process.step === "wait" || this.store.isDead ? "true" : null);
    const { pid, title, folder, notebook, whose, owner, age, memory, step } = process;
    setText(this.title, title);
    setAttribute(this.title, "title", title);
    setText(this.memory, memory);
    const number = title.endsWith(` ${pid}`) ? "" : `PID ${pid}`;
    const facts = [owner, number, age && `for\u00a0${age}`, folder && `in ${folder}`, notebook && `from ${notebook}`];
    setText(this.mark, whose && `${whose} · `);
    setText(this.about, facts.filter(Boolean).join(" · "));
    this.button.hidden = !step;
    setText(this.button, step === "kill" ? "Kill" : step === "wait" ? "Ending …" : "End");
    setAttribute(this.button, "aria-label", `${step === "kill" ? "Kill" : "End"} ${title}, PID ${pid}`);
    if (this.question && this.question.step !== step) this.closeQuestion();
  }

  // Asks in place of the button. The answer applies to the process at the time of the question.
  ask() {
    if (this.button.getAttribute("aria-disabled")) return;
    const { pid, started, title, step } = this.process;
    const kill = step === "kill";
    const text = kill
      ? `Kill ${title} (PID ${pid})? It is ended at once, without saving.`
      : `End ${title} (PID ${pid})? It gets TERM.`;
    const id = `gm-end-${makeName()}`;
    this.question = make("span", "gm-question", { role: "alertdialog", "aria-labelledby": id });
    this.question.step = step;
    this.question.append(make("span", "", { id }, text));
    const buttons = this.question.appendChild(make("span", "gm-answers"));
    const end = () => {
      this.closeQuestion();
      this.store.send("end_process", { pid, started, kill });
    };
    buttons.append(makeButton(kill ? "Kill" : "End", end, "gm-quiet gm-danger"));
    const cancel = buttons.appendChild(makeButton("Cancel", () => this.closeQuestion(), "gm-quiet"));
    this.question.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "ArrowLeft") return;
      this.closeQuestion();
      event.stopPropagation();
      event.preventDefault();
    });
    this.button.replaceWith(this.question);
    cancel.focus();
  }

  closeQuestion() {
    const hadFocus = this.question.contains(document.activeElement);
    this.question.replaceWith(this.button);
    this.question = null;
    if (hadFocus) this.button.focus();
  }
}
