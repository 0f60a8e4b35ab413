// The machine's GPUs as the Jupyter server sees them, for kernels that have not loaded gpu_magic: see
// server/extension.py.
const OPEN = 1000; // milliseconds between two readings while a table is open; else the settings say how many
const SELDOM = 300000; // the same without GPUs; a driver can start later, and users can log in again
const LONGEST = 30000; // the same while the server gives no answer

// Names on this machine can contain any characters, so they are set as text and never as markup.
function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

// As `printable` of gpu_magic.text: without control characters and direction marks.
export const printable = (text) => text.replace(/[\p{C}\p{Z}]/gu, (one) => (one === " " ? one : "\ufffd"));

// Without the unit, which appears once after used and total, as in the table of %gpus.
export const gib = (bytes) => (bytes === null ? "?" : (bytes / 2 ** 30).toFixed(bytes < 9.95 * 2 ** 30 ? 1 : 0));
const MOST_NAMED = 4; // GPUs that the chip names one by one

// The memory of some GPUs in total; null if a figure is unknown.
function together(gpus) {
  const add = (key) => gpus.reduce((all, gpu) => (all === null || gpu[key] === null ? null : all + gpu[key]), 0);
  return { used: add("used"), total: add("total") };
}

const find = (found, is) => [...found].find(is);

function sessionOf({ serviceManager }, kernel) {
  return find(serviceManager.sessions.running(), (session) => session.kernel?.id === kernel);
}

// A kernel's notebook or console.
export function nameOf(app, kernel) {
  const session = sessionOf(app, kernel);
  const model = find(app.serviceManager.kernels.running(), ({ id }) => id === kernel);
  return printable(session?.path ?? session?.name ?? model?.name ?? kernel);
}

const memory = ({ used, total }) => `${gib(used)}/${gib(total)} GiB`;

// As `age_text` of gpu_magic.text.
function age(seconds) {
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

// Asks the server while the settings say so, the page is visible and a viewer is in sight, and calls these viewers.
export class Machine {
  constructor(app, { ServerConnection, Poll, Signal }) {
    this.app = app;
    this.request = ServerConnection.makeRequest;
    this.settings = app.serviceManager.serverSettings;
    this.gpus = []; // empty: the server sees none, or lacks the extension
    this.simulated = "";
    this.idleFrom = Infinity; // seconds from which on a kernel is called idle
    this.viewers = new Map(); // of those in sight, functions called after each reading; true: for a table
    this.isWithout = false; // the server has no GPUs
    this.isOn = false; // until the settings are known
    this.turned = new Signal(this); // the settings now say otherwise
    this.every = 5000; // milliseconds between two readings
    this.poll = new Poll({
      name: "gpu_magic:gpus",
      auto: false,
      factory: () => this.read(),
      standby: () => !this.isOn || !this.viewers.size || document.visibilityState === "hidden",
    });
    document.addEventListener("visibilitychange", () => this.poll.refresh());
  }

  // The settings: schemas/gpu-magic/chip.json. A front end without settings has none.
  set({ enabled = true, interval = this.every / 1000 }) {
    const isTurned = enabled !== this.isOn;
    this.isOn = enabled;
    this.every = 1000 * interval;
    this.pace();
    if (!enabled) this.gpus = [];
    this.poll.refresh();
    if (isTurned) this.turned.emit(undefined);
  }

  pace() {
    const every = [...this.viewers.values()].some(Boolean) ? OPEN : this.every;
    const interval = this.isWithout ? SELDOM : every;
    this.poll.frequency = { backoff: true, interval, max: Math.max(interval, LONGEST) };
  }

  // Calls a function after each reading while an element is in sight. Returns a function that stops this.
  watch(element, act, isTable = false) {
    const sight = new IntersectionObserver((entries) => {
      if (!entries.at(-1).isIntersecting) {
        this.viewers.delete(act);
      } else if (!this.viewers.has(act)) {
        this.viewers.set(act, isTable);
        if (isTable || this.viewers.size === 1) this.poll.refresh(); // else the server is already asked regularly
      }
    });
    sight.observe(element);
    return () => {
      sight.disconnect();
      this.viewers.delete(act);
    };
  }

  async read() {
    try {
      const url = `${this.settings.baseUrl}gpu_magic/gpus?no_track_activity=1`;
      const answer = await this.request(url, { cache: "no-store" }, this.settings);
      if (answer.status === 404) this.poll.dispose(); // the server lacks the extension
      const { gpus, simulated, idle_from } = answer.ok ? await answer.json() : { gpus: [], simulated: "" };
      this.gpus = gpus;
      this.simulated = simulated;
      this.idleFrom = idle_from;
      this.isWithout = !gpus.length;
      this.pace();
    } catch (error) {
      this.gpus = []; // JupyterLab reports that the server has ended
      throw error; // the poll asks less often
    } finally {
      for (const act of [...this.viewers.keys()]) act();
    }
  }

  // The GPUs that a kernel uses or has claimed.
  of(kernel) {
    return this.gpus.filter((gpu) => kernel in gpu.kernels);
  }

  // This server's kernels on GPUs, the longest idle first: with bytes (null: unknown), GPUs, notebook, idle
  // seconds (0: not idle), and whether a cell or a task runs. `gpu.kernels` has what each does on a GPU.
  kernels() {
    const found = [];
    for (const id of new Set(this.gpus.flatMap((gpu) => Object.keys(gpu.kernels)))) {
      const gpus = this.of(id);
      const sizes = gpus.map((gpu) => gpu.kernels[id].memory);
      const bytes = sizes.includes(null) ? null : sizes.reduce((all, size) => all + size, 0);
      const seconds = gpus[0].kernels[id].idle; // null: unknown; the same for all its GPUs
      const idle = seconds >= this.idleFrom ? seconds : 0;
      found.push({
        id,
        gpus,
        bytes,
        hasMemory: sizes.some((size) => size > 0),
        idle,
        isBusy: seconds === 0,
        session: sessionOf(this.app, id),
        name: nameOf(this.app, id),
      });
    }
    return found.sort((one, other) => other.idle - one.idle);
  }

  async shutDown({ id, session }) {
    const { kernels, sessions } = this.app.serviceManager;
    await (session ? sessions.shutdown(session.id) : kernels.shutdown(id));
    await this.poll.refresh();
  }
}

const labels = (gpus) => gpus.map((gpu) => gpu.label).join(", ");

const withUse = (gpu) => (gpu.utilization === null ? gpu.label : `${gpu.label} (${gpu.utilization} %)`);

// What a kernel has on GPUs, and what it does now.
function describe({ id, name, gpus, bytes, idle, isBusy }) {
  const held = gpus.filter((gpu) => gpu.kernels[id].memory !== 0);
  const working = gpus.filter((gpu) => gpu.kernels[id].is_working);
  const unclear = gpus.filter((gpu) => gpu.kernels[id].is_working === null);
  const has = held.length ? `has ${gib(bytes)} GiB on ${labels(held)}` : `has claimed ${labels(gpus)}`;
  const parts = [
    `${name} ${has}.`,
    working.length && `It works on ${working.map(withUse).join(", ")} now.`,
    unclear.length && `It may be working on ${unclear.map(withUse).join(", ")}.`,
    isBusy && !working.length && "It runs a cell or a task now.",
    idle && `It has been idle for ${age(idle)}.`,
  ];
  return parts.filter(Boolean).join(" ");
}

// Describes what a shutdown of a kernel ends and loses.
export function question(kernel) {
  return `${describe(kernel)} Its variables will be lost.`;
}

// The chip of a notebook whose kernel has not loaded gpu_magic.
export class MachineChip {
  constructor(machine, element, kernel, open) {
    this.machine = machine;
    this.kernel = kernel;
    element.classList.add("gm-chip-place");
    element.hidden = false; // so that it is in sight before the first reading
    this.button = element.appendChild(make("button", "gm-chip"));
    Object.assign(this.button, { type: "button", lang: "en", title: "Show the GPUs of this machine" });
    this.button.addEventListener("click", open);
    this.text = this.button.appendChild(make("span"));
    this.state = this.button.appendChild(make("span", "gm-chip-state"));
    this.stop = machine.watch(element, () => this.show());
    this.show();
  }

  show() {
    const { gpus, simulated } = this.machine;
    this.button.hidden = !gpus.length;
    const id = this.kernel()?.id;
    const whole = gpus.filter((gpu) => !gpu.is_split);
    const own = this.machine.of(id);
    const free = whole.filter((gpu) => gpu.is_free).length;
    const idle = this.machine.kernels().find((kernel) => kernel.id === id)?.idle;
    const names = own.length > MOST_NAMED ? `${own.length} GPUs` : labels(own);
    this.text.textContent = [names, own.length && memory(together(own)), simulated && "SIMULATED"]
      .filter(Boolean)
      .join(" · ");
    this.state.textContent = own.length ? (idle ? `idle ${age(idle)}` : "") : `${free} of ${whole.length} GPUs free`;
    this.state.dataset.state = own.length || !free ? "unknown" : "live";
  }

  close() {
    this.stop();
    this.button.remove();
  }
}

// The table that a click on the chip opens. `use` is called with the text after %gpus; undefined if the
// notebook is not in Python.
export class MachineTable {
  constructor(machine, element, { use, kernel, confirm }) {
    this.machine = machine;
    this.use = use;
    this.kernel = kernel;
    this.confirm = confirm;
    this.root = element.appendChild(make("div", "gm-panel gm-machine"));
    this.root.lang = "en";
    this.mark = this.root.appendChild(make("p", "gm-machine-mark"));
    this.list = this.root.appendChild(make("ul"));
    this.rows = new Map();
    this.stop = machine.watch(this.root, () => this.show(), true);
    this.show();
  }

  show() {
    const { gpus, simulated } = this.machine;
    this.mark.textContent = simulated ? `SIMULATED machine (${simulated}): these GPUs do not exist` : "";
    for (const [key, row] of this.rows) {
      if (gpus.some((gpu) => gpu.typed === key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    for (const gpu of gpus) {
      if (!this.rows.has(gpu.typed)) this.rows.set(gpu.typed, this.makeRow(gpu));
      this.fill(this.rows.get(gpu.typed), gpu);
    }
  }

  makeRow({ typed, is_split, name }) {
    const element = this.list.appendChild(make("li"));
    const parts = ["name", "memory", "util", "users", "do"].map((part) => make("div", `gm-machine-${part}`));
    element.append(...parts);
    const [label, used, util, users, actions] = parts;
    label.title = name;
    if (this.use && !is_split) this.addButton(actions, "Use in this notebook", () => this.use(typed));
    const bar = used.appendChild(make("span"));
    const meter = used.appendChild(make("meter"));
    return { element, label, bar, meter, util, users, actions, own: [] };
  }

  addButton(parent, text, act) {
    const button = parent.appendChild(make("button", "", text));
    button.type = "button";
    button.dataset.lmSuppressShortcuts = "true";
    button.addEventListener("click", act);
    return button;
  }

  fill(row, gpu) {
    const set = (element, text) => element.textContent === text || (element.textContent = text);
    set(row.label, gpu.label);
    set(row.bar, memory(gpu));
    row.meter.value = gpu.total && gpu.used ? gpu.used / gpu.total : 0;
    row.meter.ariaLabel = `Memory of ${gpu.label}`;
    set(row.util, gpu.utilization === null ? "?" : `${gpu.utilization} %`);
    set(row.users, gpu.users.join("\n"));
    row.users.classList.toggle("gm-machine-free", gpu.is_free);
    // Idle kernels of this server, except the notebook's own.
    const idle = this.machine
      .kernels()
      .filter(({ id, gpus, idle }) => idle && id !== this.kernel()?.id && gpus.includes(gpu));
    const key = JSON.stringify(idle.map(({ id, name }) => [id, name]));
    if (row.key === key) return;
    row.key = key;
    for (const button of row.own) button.remove();
    row.own = idle.map(({ id, name }) => this.addButton(row.actions, `Shut down ${name}`, () => this.ask(id)));
  }

  async ask(id) {
    const kernel = this.machine.kernels().find((one) => one.id === id);
    if (kernel && (await this.confirm(`Shut down ${kernel.name}?`, question(kernel))))
      await this.machine.shutDown(kernel);
  }

  close() {
    this.stop();
    this.root.remove();
  }
}

// A widget and all that it holds.
function* within(widget) {
  yield widget;
  for (const child of widget.children()) yield* within(child);
}

// Lists the kernels on GPUs in JupyterLab's view of running kernels, while the settings say so.
export function listRunning(machine, managers, { Signal, notebookIcon }) {
  const name = "Kernels with GPUs";
  const changed = new Signal(machine);
  const detail = ({ gpus, bytes, idle }) =>
    [bytes === 0 ? `${labels(gpus)}: claimed` : `${labels(gpus)}: ${gib(bytes)} GiB`, idle && `idle ${age(idle)}`]
      .filter(Boolean)
      .join(", ");
  // Without a viewer in sight, the last reading can be old.
  const list = () => (machine.viewers.size ? machine.kernels() : []);
  const textOf = (kernels) => JSON.stringify(kernels.map((kernel) => [kernel.id, detail(kernel), question(kernel)]));
  let shown = "";
  let asked = []; // the kernels that the question before "Shut Down All" has named
  const look = () => {
    if (textOf(list()) !== shown) changed.emit(undefined);
  };
  const item = (kernel) => ({
    open: () => {
      const { type, path } = kernel.session ?? {};
      if (path) machine.app.commands.execute(type === "console" ? "console:open" : "docmanager:open", { path });
    },
    shutdown: () => machine.shutDown(kernel),
    icon: () => notebookIcon,
    label: () => kernel.name,
    labelTitle: () => question(kernel),
    detail: () => detail(kernel),
  });
  // In JupyterLab at the side, in Notebook 7 in the page with the files.
  machine.app.started.then(() => {
    const view = document.querySelector(".jp-RunningSessions");
    if (view) machine.watch(view, look);
  });
  const manager = {
    name,
    running: () => {
      const kernels = list();
      shown = textOf(kernels);
      return kernels.map(item);
    },
    shutdownAll() {
      const there = machine.kernels().map(({ id }) => id);
      for (const kernel of asked) if (there.includes(kernel.id)) machine.shutDown(kernel);
    },
    refreshRunning: () => machine.poll.refresh(),
    runningChanged: changed,
    shutdownLabel: "Shut Down",
    shutdownAllLabel: "Shut Down All",
    // JupyterLab reads this just before it asks.
    get shutdownAllConfirmationText() {
      asked = machine.kernels().filter(({ hasMemory }) => hasMemory);
      if (!asked.length) return "No kernel is known to have memory on a GPU. None will be shut down.";
      return asked.length > 1 ? `${asked.map(describe).join(" ")} Their variables will be lost.` : question(asked[0]);
    },
  };
  let added;
  machine.turned.connect(() => {
    if (machine.isOn) {
      added = managers.add(manager);
    } else {
      added?.dispose();
      [...within(machine.app.shell)].find((one) => one.title.label === name)?.dispose(); // the view would keep it
    }
  });
}
