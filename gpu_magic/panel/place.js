// Says whether a view of the panel is visible, and to a person: the kernel reads the machine only while one is.
const SAY_AGAIN = 15000; // milliseconds after which a page says again that a view is watched
const UNWATCHED = 600000; // milliseconds without input after which nobody is taken to watch
const INPUT = ["pointermove", "pointerdown", "keydown", "wheel"];

class Visibility {
  // `open` returns the keys of the rows that are open.
  constructor(element, store, open = () => []) {
    this.store = store;
    this.open = open;
    this.view = makeName();
    this.state = null; // as in the message; null: not known yet
    this.isInSight = false;
    this.inputAt = Date.now();
    this.check = () => this.set(this.find());
    // What is scrolled away, or behind another tab of JupyterLab, does not intersect the window.
    this.sight = new IntersectionObserver((entries) => {
      this.isInSight = entries.at(-1).isIntersecting;
      this.check();
    });
    this.sight.observe(element);
    this.input = () => {
      this.inputAt = Date.now();
      if (this.state === "unwatched") this.check();
    };
    for (const type of INPUT) document.addEventListener(type, this.input, { capture: true, passive: true });
    document.addEventListener("visibilitychange", this.check);
    this.leave = () => this.set("hidden");
    addEventListener("pagehide", this.leave);
    this.timer = setInterval(() => this.sayAgain(), SAY_AGAIN);
  }

  find() {
    if (document.visibilityState !== "visible" || !this.isInSight) return "hidden";
    return Date.now() - this.inputAt < UNWATCHED ? "watched" : "unwatched";
  }

  set(state) {
    if (state === this.state) return;
    this.state = state;
    // While nobody looked, nothing was sent: that is no silence of the kernel's.
    if (state === "watched") this.store.heardAt = Date.now();
    this.say();
  }

  sayAgain() {
    if (this.state !== "watched") return;
    this.check();
    if (this.state === "watched") this.say();
  }

  say() {
    if (this.state === null) return;
    this.store.send("look", { view: this.view, visibility: this.state, open: this.open() });
  }

  close() {
    this.set("hidden");
    clearInterval(this.timer);
    this.sight.disconnect();
    for (const type of INPUT) document.removeEventListener(type, this.input, { capture: true });
    document.removeEventListener("visibilitychange", this.check);
    removeEventListener("pagehide", this.leave);
  }
}

// The chip: this kernel's GPUs, their memory and CUDA's state in a line that is always in sight. A click opens the panel.
class ChipView {
  constructor(store, element, open) {
    this.store = store;
    this.element = element;
    element.classList.add("gm-chip-place");
    const attributes = { type: "button", lang: "en", title: "Open the panel of the GPUs" };
    this.button = element.appendChild(make("button", "gm-chip", attributes));
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
  const used = sum(keys.map((key) => store.rows[key].used));
  const total = sum(keys.map((key) => store.rows[key].total_gib));
  return used === null || !total ? "" : `${Math.round(used)}/${Math.round(total)} GiB`;
}

// Where a panel is shown. After a restart of its kernel, and %load_ext there, the new kernel's panel takes the place.
class Place {
  constructor(model) {
    this.model = model;
    this.store = new Store(model);
    this.views = new Map(); // what closes each, by element
    this.successor = undefined; // the new kernel's panel
    this.isClosed = false;
    // JupyterLab and Notebook 7 tell a widget of its notebook's session; in other front ends a lost panel stays lost.
    this.session = findSession(model);
    this.store.whenLost = () => this.look(); // gpu_magic can be loaded again already
    this.stop = this.session && afterCells(this.session, () => this.look());
  }

  render(element) {
    const show = () => (this.successor ? this.successor.render({ el: element }) : showView(new PanelView(this.store, element)));
    this.views.set(element, show());
    return () => {
      this.views.get(element)?.();
      this.views.delete(element);
    };
  }

  // Looks for a kernel that can go on with the panel, where its own does not. It does not wait for an earlier look: a
  // kernel that is being started can leave messages without an answer.
  async look() {
    if (!this.session || !(this.store.isGone || this.store.isSilent)) return;
    const kernel = this.session.session?.kernel;
    const comm = await findComm(kernel);
    if (comm && !this.isClosed && !this.successor) await this.goOn(kernel, comm);
  }

  async goOn(kernel, comm) {
    const successor = await openPanel(kernel, comm, { key: this.model.get("key") }, this.model.widget_manager);
    if (!successor) return;
    // A kernel that is about to be restarted is still there: it is not the next one.
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
    // Of our own, for the extension: the chip, with what a click on it does.
    chip({ el, open }) {
      return showView(new ChipView(place.store, el, open));
    },
  };
};
