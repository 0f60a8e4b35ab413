// The chip, and the places that show a panel.
// The chip: a line with this kernel's GPUs, their memory, CUDA's state, and whether other code has replaced the
// choice. A click opens the panel.
class ChipView {
  constructor(store, element, open) {
    this.store = store;
    this.element = element;
    element.classList.add("gm-chip-place");
    this.button = element.appendChild(make("button", "gm-chip", { type: "button", lang: "en" }));
    this.button.addEventListener("click", open);
    this.gpus = this.button.appendChild(make("span"));
    this.state = this.button.appendChild(make("span", "gm-chip-state"));
    this.replaced = this.button.appendChild(make("span", "gm-chip-state"));
    this.replaced.dataset.state = "broken";
    this.visibility = new Visibility(element, store, () => null);
    this.timer = setInterval(() => this.show(), 1000); // no message reports a silence
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
    setText(this.replaced, header.replaced && "choice replaced");
    setAttribute(this.button, "title", header.replaced || "Open the panel of the GPUs");
  }

  close() {
    this.visibility.close();
    clearInterval(this.timer);
    this.store.views.delete(this);
    this.button.remove();
  }
}

const MOST_NAMED = 4; // GPUs that the chip names one by one

// The devices that this kernel uses: the chosen or given ones, else all.
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

// Used and total memory; empty if a part of it is unknown.
function chipMemory(store) {
  const keys = chipKeys(store);
  const sum = (numbers) => (numbers.includes(null) ? null : numbers.reduce((all, one) => all + one, 0));
  const used = sum(keys.map((key) => store.rows[key].used));
  const total = sum(keys.map((key) => store.rows[key].total_gib));
  return used === null || !total ? "" : `${Math.round(used)}/${Math.round(total)} GiB`;
}

// A place that shows a panel. After a restart and %load_ext, the panel of the new kernel replaces it.
class Place {
  constructor(model) {
    this.model = model;
    this.store = new Store(model);
    this.views = new Map(); // functions that close the views, by element
    this.successor = undefined; // the new kernel's panel
    this.isClosed = false;
    // Only JupyterLab and Notebook 7 give a widget its session. Elsewhere, a lost panel stays lost.
    this.session = findSession(model);
    this.store.whenLost = () => this.look(); // gpu_magic may already be loaded again
    this.stop = this.session && afterCells(this.session, () => this.look());
  }

  render(element) {
    const show = () =>
      this.successor ? this.successor.render({ el: element }) : showView(new PanelView(this.store, element));
    this.views.set(element, show());
    return () => {
      this.views.get(element)?.();
      this.views.delete(element);
    };
  }

  // If the panel's kernel is lost or silent, looks for a kernel that can continue the panel. It does not wait
  // for an earlier look, because a starting kernel can leave messages without an answer.
  async look() {
    if (!this.session || !(this.store.isGone || this.store.isSilent)) return;
    const kernel = this.session.session?.kernel;
    const comm = await findComm(kernel);
    if (comm && !this.isClosed && !this.successor) await this.goOn(kernel, comm);
  }

  async goOn(kernel, comm) {
    const successor = await openPanel(kernel, comm, { key: this.model.get("key") }, this.model.widget_manager);
    if (!successor) return;
    // A kernel that is about to be restarted still answers, but it is not the next one.
    const isSame = successor.model.get("full_state").process === this.store.process;
    if (this.isClosed || this.successor || (isSame && !this.model.isClosed)) return successor.close();
    this.leave();
    this.successor = successor;
    for (const [element, close] of this.views) {
      close();
      this.views.set(element, successor.render({ el: element }));
    }
  }

  leave() {
    this.stop?.();
    this.store.close();
  }

  close() {
    this.isClosed = true;
    this.leave();
    this.successor?.close();
  }
}

const showView = (view) => () => view.close();

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
    // Not part of anywidget: the chip, for the extension. A click calls `open`.
    chip({ el, open }) {
      return showView(new ChipView(place.store, el, open));
    },
  };
};
