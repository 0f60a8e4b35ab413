// The options of a choice: how frameworks may take memory. They are shown when they are asked for, or given.
class MemoryOptions {
  constructor(panel, store) {
    this.store = store;
    this.element = panel.appendChild(make("div", "gm-options", { id: `gm-options-${makeName()}`, role: "group" }));
    this.element.setAttribute("aria-label", "Options");
    this.element.hidden = true;
    const growth = this.element.appendChild(make("label"));
    this.growth = growth.appendChild(makeFocusable("input", "", { type: "checkbox" }));
    growth.append("take memory as it is needed");
    growth.title = "TensorFlow and JAX take most of a GPU's memory at once, otherwise";
    const limit = this.element.appendChild(make("label"));
    limit.append("at most");
    this.limit = limit.appendChild(makeFocusable("input", "", { type: "text", placeholder: "8GB", size: "7", spellcheck: "false" }));
    limit.append("of each GPU");
    limit.title = "What TensorFlow, JAX and PyTorch may take";
    this.growth.addEventListener("change", () => store.setMemory({ growth: this.growth.checked }));
    this.limit.addEventListener("change", () => this.setLimit());
    this.limit.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation();
      this.setLimit();
    });
  }

  // The button that shows them.
  makeButton(parent, className) {
    const button = parent.appendChild(makeFocusable("button", className, { type: "button", "aria-controls": this.element.id }));
    setText(button, "options");
    button.addEventListener("click", () => {
      this.element.hidden = !this.element.hidden;
      setAttribute(button, "aria-expanded", String(!this.element.hidden));
    });
    this.button = button;
    setAttribute(button, "aria-expanded", "false");
  }

  setLimit() {
    const limit = this.limit.value.replace(/\s/g, "");
    if (limit === this.shown?.limit) return;
    if (limit && !LIMIT.test(limit)) return this.store.warn(`${this.limit.value} is not a size; try 8GB, or 8GiB.`);
    this.store.setMemory({ limit });
  }

  // What is being typed stays until it is done.
  show(request) {
    const { growth, limit } = splitRequest(request);
    if (growth === this.shown?.growth && limit === this.shown?.limit) return;
    this.shown = { growth, limit };
    this.growth.checked = growth;
    this.limit.value = limit;
    if ((growth || limit) && this.element.hidden) this.button.click();
  }
}
