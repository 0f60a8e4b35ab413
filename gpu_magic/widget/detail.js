// What is shown below a row that is open: its figures over time, its processes, and this kernel's variables there.
class DetailView {
  constructor(key, store, chevron) {
    this.key = key;
    this.store = store;
    this.chevron = chevron;
    // A row of the grid with one cell: what a grid has must be rows and cells.
    this.element = make("div", "gm-detail", { role: "row", "data-key": key });
    const id = `gm-detail-${makeName()}`;
    this.cell = this.element.appendChild(make("div", "gm-detail-cell", { role: "gridcell", id }));
    setAttribute(this.cell, "aria-colspan", String(CELLS.length));
    this.build();
    setAttribute(chevron, "aria-expanded", "true");
    setAttribute(chevron, "aria-controls", id);
  }

  build() {
    const figures = this.cell.appendChild(make("div", "gm-detail-figures"));
    this.util = new FigureView("Utilization", new Chart(LARGE));
    this.memory = new FigureView("Memory", new Chart(LARGE_SHARES, (share) => this.gibibytes(share)), "gm-detail-memory");
    this.power = make("p", "gm-detail-power");
    figures.append(this.util.element, this.memory.element, this.power);
    const lists = this.cell.appendChild(make("div", "gm-detail-lists"));
    this.processes = new ProcessList(this.store, () => this.chevron.closest(".gm-row").focus());
    this.variables = new VariableList(this.store);
    lists.append(this.processes.element, this.variables.element);
  }

  show() {
    const { key, store } = this;
    const row = store.rows[key];
    const detail = store.details.get(key) ?? {};
    const { used, utilization, power } = unpackFigures(store.figures[key]);
    const name = row.parent ? row.name : `GPU ${row.label}`;
    setAttribute(this.cell, "aria-label", `Details of ${name}`);
    // An instance has no utilization of its own, and a GPU that is lost has no figures.
    const samples = store.history[key] ?? [];
    this.util.element.hidden = row.parent || !samples.some((value) => value !== null);
    this.util.show(figure(utilization, "%"), samples);
    this.total = row.total_gib ?? NaN;
    this.memory.element.hidden = !detail.memory?.some((value) => value !== null) || Number.isNaN(this.total);
    this.memory.show(usedOfTotal(used, row), detail.memory ?? []);
    this.showPower(power, detail);
    this.processes.show(row, detail);
    const isHere = detail.processes?.some(({ whose }) => whose);
    this.variables.show(detail.variables, isHere);
  }

  // What the driver does not give is left out.
  showPower(power, { power_limit: limit, slowdowns }) {
    const isKnown = typeof limit === "number";
    const text = typeof power === "number" && isKnown ? `${power} of ${limit} W` : isKnown ? `at most ${limit} W` : "";
    const slow = slowdowns?.length ? `slowed down: ${slowdowns.join(", ")}` : "";
    this.power.hidden = !text && !slow;
    const state = JSON.stringify([text, slow]);
    if (state === this.powerState) return;
    this.powerState = state;
    this.power.replaceChildren();
    if (text) {
      setText(this.power.appendChild(make("span", "gm-detail-title")), "Power");
      setText(this.power.appendChild(make("span")), text);
    }
    if (slow) setText(this.power.appendChild(make("span", "gm-detail-slow")), slow);
  }

  gibibytes(share) {
    return sizeText((share / 1000) * this.total);
  }

  // Goes to the first button.
  focus() {
    this.cell.querySelector("button:not(:disabled)")?.focus();
  }

  close() {
    this.element.remove();
    setAttribute(this.chevron, "aria-expanded", "false");
    setAttribute(this.chevron, "aria-controls", null);
  }
}

// A chart with its name and its latest value above, and the times that it spans below.
class FigureView {
  constructor(title, chart, className = "") {
    this.chart = chart;
    this.element = make("div", `gm-figure ${className}`.trim());
    const caption = this.element.appendChild(make("p", "gm-detail-caption"));
    setText(caption.appendChild(make("span", "gm-detail-title")), title);
    this.value = caption.appendChild(make("span", "gm-detail-value"));
    this.element.append(chart.element);
    const axis = this.element.appendChild(make("p", "gm-detail-axis", { "aria-hidden": "true" }));
    this.times = ["", ""].map(() => axis.appendChild(make("span")));
  }

  show(value, samples) {
    setText(this.value, value);
    this.chart.draw(samples);
    // The chart fills from the left; once it is full, the oldest sample leaves it.
    const isFull = samples.length >= SAMPLES;
    setText(this.times[0], isFull ? "3 min ago" : "");
    setText(this.times[1], isFull ? "now" : "");
  }
}

// This kernel's variables on a GPU, and the button that frees what no variable holds.
class VariableList {
  constructor(store) {
    this.element = make("div", "gm-detail-variables");
    const id = `gm-variables-${makeName()}`;
    this.title = this.element.appendChild(make("p", "gm-detail-title", { id }));
    setText(this.title, "Variables of this kernel");
    this.list = this.element.appendChild(make("ul", "", { "aria-labelledby": id }));
    this.note = this.element.appendChild(make("p", "gm-detail-note"));
    this.free = this.element.appendChild(
      makeFocusable("button", "gm-quiet", { type: "button", title: "Does what %gpu_free does, on all GPUs" }),
    );
    setText(this.free, "Free what can be freed");
    this.free.addEventListener("click", () => store.free());
    this.store = store;
  }

  // `isHere`: whether this kernel has memory on the GPU, as the driver says.
  show(variables, isHere) {
    this.element.hidden = !(variables?.largest.length || (variables && isHere));
    this.free.disabled = this.store.isDead;
    const state = JSON.stringify(variables);
    if (!variables || state === this.state) return;
    this.state = state;
    const { largest, more, unfinished } = variables;
    this.list.hidden = !largest.length;
    this.list.replaceChildren(...largest.map(([name, size]) => makePair(name, size)));
    const notes = [];
    if (more) notes.push(`and ${more} more`);
    if (!largest.length) notes.push(unfinished ? "none found so far" : "none here");
    else if (unfinished) notes.push("not all were looked at");
    setText(this.note, notes.join("; "));
  }
}

function makePair(name, size) {
  const item = make("li");
  setText(item.appendChild(make("span", "gm-detail-name", { title: name })), name);
  setText(item.appendChild(make("span", "gm-detail-size")), size);
  return item;
}
