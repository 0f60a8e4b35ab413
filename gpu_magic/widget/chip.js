// The chip: this kernel's GPUs, their memory and CUDA's state in a line that is always in sight. A click opens the panel.
class ChipView {
  constructor(store, element, open) {
    this.store = store;
    this.element = element;
    element.classList.add("gm-chip-place");
    this.button = element.appendChild(make("button", "gm-chip", { type: "button", lang: "en", title: "Open the panel of the GPUs" }));
    this.button.addEventListener("click", open);
    this.gpus = this.button.appendChild(make("span"));
    this.state = this.button.appendChild(make("span", "gm-chip-state"));
    this.visibility = new Visibility(element, store);
    this.timer = setInterval(() => this.show(), 1000); // a silence is not told
    store.views.add(this);
    this.show();
  }

  show() {
    const { store } = this;
    const { header } = store;
    this.element.hidden = !store.isLive || store.isGone || store.isRestarting || store.isPaused || !store.order.length;
    const parts = [chipDevices(store), chipMemory(store), header.simulated && "SIMULATED"];
    setText(this.gpus, parts.filter(Boolean).join(" · "));
    setText(this.state, store.isSilent ? "no answer" : stateText(header));
    this.state.dataset.state = store.isSilent ? "unknown" : header.cuda_state;
  }

  close() {
    this.visibility.close();
    clearInterval(this.timer);
    this.store.views.delete(this);
    this.button.remove();
  }
}

const MOST_NAMED = 4; // GPUs that the chip names one by one

// The devices that this kernel uses: those that it has chosen, or was given; else all.
function chipKeys(store) {
  const { header, order, rows, visible } = store;
  return header.hides_devices ? visible : order.filter((key) => !rows[key].parent);
}

function chipDevices(store) {
  const keys = chipKeys(store);
  if (!keys.length) return "no GPU";
  const parent = store.rows[keys[0]].parent;
  if (parent) return `MIG of GPU ${parent}`;
  if (!store.header.hides_devices && keys.length > 1) return `all ${keys.length} GPUs`;
  if (keys.length > MOST_NAMED) return `${keys.length} GPUs`;
  return `${keys.length > 1 ? "GPUs" : "GPU"} ${keys.join(",")}`;
}

// Memory in use of the total; empty where a part of it is not known.
function chipMemory(store) {
  const keys = chipKeys(store);
  const sum = (numbers) => (numbers.includes(null) ? null : numbers.reduce((all, one) => all + one, 0));
  const used = sum(keys.map((key) => unpackFigures(store.figures[key]).used));
  const total = sum(keys.map((key) => store.rows[key].total_gib));
  return used === null || !total ? "" : `${Math.round(used)}/${Math.round(total)} GiB`;
}
