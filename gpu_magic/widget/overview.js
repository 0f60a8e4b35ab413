// Above the rows of many GPUs: how many there are of each model, and which of the rows are shown in which order.
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

  show() {
    this.element.hidden = !this.isShown;
    if (this.isShown) setText(this.models, countModels(this.store.order.map((key) => this.store.rows[key])));
  }

  // The keys of the rows that are to be shown, in their order. A GPU and its instances stay together.
  arrange() {
    const { order } = this.store;
    if (!this.isShown || !(this.freeOnly.checked || this.sorted.checked)) return order;
    const groups = [...Map.groupBy(order, (key) => this.store.rows[key].parent || key).values()];
    if (this.sorted.checked) groups.sort((one, other) => this.mostFree(other) - this.mostFree(one));
    return this.freeOnly.checked ? groups.flatMap((group) => this.free(group)) : groups.flat();
  }

  // Of a GPU and its instances, those that are free, or clicked; and the GPU that they are on.
  free(group) {
    const marked = this.store.marked;
    const isFree = (key) => this.store.rows[key].usage === "free" && !this.store.rows[key].unavailable;
    const kept = group.filter((key) => isFree(key) || marked.includes(key));
    return group.filter((key) => kept.includes(key) || (kept.length && !this.store.rows[key].parent));
  }

  // In GiB; -1 where it is not known.
  mostFree(group) {
    const { rows, figures } = this.store;
    return Math.max(
      ...group.map((key) => {
        const { used } = unpackFigures(figures[key]);
        const free = (rows[key].total_gib ?? NaN) - used;
        return used === null || Number.isNaN(free) || rows[key].unavailable ? -1 : free;
      }),
    );
  }
}

// How many there are of each model, or kind of MIG instance, and how many of them are free.
function countModels(rows) {
  const models = Map.groupBy(
    rows.filter((row) => !row.unavailable),
    (row) => row.name.replace(/^NVIDIA (GeForce )?/, "").replace(/ MIG-.*/, ""),
  );
  const count = ([model, those]) => `${those.length} × ${model}: ${those.filter((row) => row.usage === "free").length} free`;
  return [...models].map(count).join(" · ");
}
