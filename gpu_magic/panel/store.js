// What a panel shows: the machine as the kernel last sent it, what was clicked, and what is said of it. A page can show
// a panel in several views; all of them show this. messages.py says what is sent.
const ANSWER_LIMIT = 150; // milliseconds after which what was asked for without an answer waits for the kernel
const SILENCE = 20000; // milliseconds without a message from the kernel, which sends one a second
const RESTART_TIME = 6000; // milliseconds after which a restart by another page or the kernel is done
const NOTHING = { text: "", kind: "info", warnings: [] };

// Where the page can find the panel's next kernel, and where it can't.
const RESTARTED = [
  "The kernel was restarted. Run %load_ext gpu_magic to apply the saved choice and continue this panel.",
  "The kernel was restarted. Run %load_ext gpu_magic to apply the saved choice, then %gpu_panel.",
];
const GONE = [
  "This panel's kernel has ended. Run %load_ext gpu_magic to continue this panel.",
  "This panel's kernel has ended. Run %load_ext gpu_magic, then %gpu_panel.",
];
const SILENT = "The kernel does not answer. If this message stays, restart the kernel.";

class Store {
  constructor(model) {
    this.model = model;
    this.page = makeName();
    this.views = new Set();
    // What was clicked and is not applied yet: a request; "": no device so far; null: nothing was clicked.
    this.draft = null;
    this.requested = undefined; // the draft that the kernel was asked for
    this.notice = NOTHING;
    this.isLive = false; // a page without a kernel has the state of then, and shows the table: see `receive`
    this.isGone = false;
    this.isRestarting = false;
    this.isAsking = false;
    this.rows = {};
    this.take(model.get("full_state"));
    model.on("msg:custom", (message) => this.receive(message));
    this.close = whenKernelIsLost(model, () => this.lose());
  }

  receive(message) {
    if (message.type === "restart") this.restart(message);
    if (message.type !== "state") return;
    if (this.isGone) this.notice = NOTHING;
    this.isGone = false;
    this.isLive = true; // a kernel has sent it: a page without one has nobody who would
    this.take(message.state);
  }

  take(state) {
    const wasSame = this.isSame;
    this.heardAt = Date.now();
    this.keepHistory(state);
    this.header = state.header;
    this.rows = Object.fromEntries(state.rows.map((row) => [row.key, row]));
    this.order = state.rows.map(({ key }) => key);
    for (const name of ["process", "second", "details"]) this[name] = state[name];
    this.isPaused = state.is_paused;
    const { said, waiting } = state;
    const isSaid = said.number !== this.said?.number;
    if (isSaid || waiting !== this.waitText) this.stopAsking();
    // What was clicked stays until the kernel has it, whoever has chosen it.
    const isDone = isSaid && said.kind === "done" && this.draft === this.requested;
    if (isDone || (this.isSame && !wasSame) || this.isPaused) this.draft = null;
    if (isSaid && said.text) this.requested = undefined;
    if (isSaid && !this.isRestarting) this.notice = said;
    this.said = said;
    this.waitText = waiting;
    if (state.is_restarting && !this.isRestarting) this.waitForRestart();
    this.show();
  }

  // Utilization in percent, an item each second, the latest last; null: not known, or nothing was read then.
  keepHistory({ history, second, rows }) {
    if (history) {
      this.history = history;
      return;
    }
    for (const { key, utilization } of rows) {
      const samples = (this.history[key] ??= []);
      if (second === this.second) samples.pop();
      for (let passed = Math.max(this.second + 1, second - SAMPLES); passed < second; passed++) samples.push(null);
      samples.push(typeof utilization === "number" ? utilization : null);
      samples.splice(0, samples.length - SAMPLES);
    }
  }

  // A widget manager throws where it has no kernel any more, also while its notebook is closed.
  send(type, values = {}) {
    if (this.isGone) return;
    try {
      this.model.send({ type, ...values });
    } catch {
      this.lose();
    }
  }

  // Whether the panel shows a kernel that would not react: controls are dimmed.
  get isDead() {
    return this.isGone || this.isRestarting || this.isPaused || this.isSilent;
  }

  // Whether a page that should hear from the kernel does not.
  get isSilent() {
    return this.silence > SILENCE && [...this.views].some((view) => view.visibility.state === "watched");
  }

  get silence() {
    return Date.now() - this.heardAt;
  }

  lose() {
    clearTimeout(this.losing);
    this.isGone = true;
    this.waitText = "";
    this.stopAsking();
    if (!this.model.isClosed) this.notice = { text: this.lossText, kind: "warning" }; // else the kernel has said why
    this.show();
    this.whenLost?.();
  }

  get lossText() {
    const [goesOn, stays] = this.isRestarting ? RESTARTED : GONE;
    return this.model.isFollowed || findSession(this.model) ? goesOn : stays;
  }

  // Asks for something, and says so where the answer does not come at once.
  ask(type, values, text) {
    this.stopAsking();
    this.notice = NOTHING;
    this.isAsking = true;
    this.asking = setTimeout(() => {
      this.notice = { text, kind: "pending" };
      this.show();
    }, ANSWER_LIMIT);
    this.send(type, values);
    this.show();
  }

  stopAsking() {
    clearTimeout(this.asking);
    this.isAsking = false;
    if (this.notice.kind === "pending" && !this.isRestarting) this.notice = NOTHING;
  }

  choose(restart, request = this.draft) {
    this.requested = request;
    const text = `%gpus ${request}: ${restart ? "restarts" : "applies"} when the kernel is free`;
    this.ask("choose", { request, restart, page: this.page }, text);
  }

  // Chooses what was clicked as soon as nobody else has it.
  wait() {
    this.requested = this.draft;
    this.ask("wait", { request: this.draft }, `%gpus ${this.draft}: starts to wait when the kernel is free`);
  }

  stopWaiting() {
    this.ask("stop_waiting", {}, "Waiting stops when the kernel is free");
  }

  // Frees what `%gpu_free` does; what comes of it is said.
  free() {
    this.ask("free", {}, "Frees memory when the kernel is free");
  }

  waitForRestart() {
    this.stopAsking();
    this.isRestarting = true;
    this.notice = { text: "Restarting the kernel …", kind: "pending" };
    // A page does not learn of a restart that another page has asked the server for.
    this.losing = setTimeout(() => this.lose(), RESTART_TIME);
  }

  // Of several pages of a kernel, the one that the kernel names restarts it.
  async restart({ kernel, page }) {
    if (page && page !== this.page) return;
    const answer = (can) => this.send("answer_restart", { page: this.page, can });
    answer(true);
    if (!page) return; // the kernel will name one of those that can
    if (await restartThroughServer(kernel)) this.lose();
    else answer(false);
  }

  show() {
    for (const view of this.views) view.show();
  }

  // What was said was about another draft; but what was asked for will still be done.
  change(draft) {
    if (!this.isAsking && !this.isRestarting) this.notice = NOTHING;
    if (this.waitText) this.send("stop_waiting");
    this.draft = draft;
    this.show();
  }

  // Changes the devices of the draft; the options stay.
  setDevices(devices) {
    this.change(joinRequest({ ...splitRequest(this.draft ?? this.header.memory_options), devices }));
  }

  // Changes the options of the draft, which begins with the devices that are marked.
  setMemory(changed) {
    const request = this.draft ?? this.marked.join(",") + this.header.memory_options;
    this.change(joinRequest({ ...splitRequest(request), ...changed }));
  }

  warn(text) {
    this.notice = { text, kind: "warning" };
    this.show();
  }

  // The devices that this kernel sees, in the order of cuda:i.
  get visible() {
    const ordinal = (key) => Number(this.rows[key].visible_as.slice("cuda:".length));
    const keys = this.order.filter((key) => this.rows[key].visible_as.startsWith("cuda:"));
    return keys.sort((first, second) => ordinal(first) - ordinal(second));
  }

  // The devices that are marked: those that were clicked, else those that were chosen. Where all are visible,
  // nothing was chosen.
  get marked() {
    if (this.draft === null) return this.header.hides_devices ? this.visible : [];
    const devices = this.draft === "reset" ? this.header.launch_devices : splitRequest(this.draft).devices;
    return devices.split(",").filter((key) => key in this.rows);
  }

  // What is said below the rows: of the latest event, else of what was clicked.
  get shownNotice() {
    if (this.isSilent && !this.isGone) return { text: SILENT, kind: "warning" };
    if (this.notice.text || this.draft === null || this.waitText) return this.notice;
    return { text: this.warning, kind: "warning" };
  }

  // Who uses or has claimed what was clicked.
  get warning() {
    const name = ({ key, parent }) => (parent ? key : `GPU ${key}`);
    const isUsed = (users) => users.some((user) => !user.startsWith("claimed by "));
    const busy = this.marked.map((key) => this.rows[key]).filter((row) => row.usage === "busy");
    return busy.map((row) => `${name(row)} is ${isUsed(row.users) ? "in use. " : ""}${row.users.join("; ")}`).join("\n");
  }

  // Those of what was clicked that another process uses or has claimed.
  get held() {
    const isNamed = this.draft !== null && this.draft !== "reset";
    return isNamed ? this.marked.filter((key) => this.rows[key].is_held) : [];
  }

  get isFrozen() {
    return this.header.cuda_state === "frozen";
  }

  // What the kernel has, as one would type it; empty where nothing was chosen.
  get applied() {
    const { hides_devices: hides, memory_options: options } = this.header;
    const devices = hides ? this.visible.join(",") || "none" : "all";
    return hides || options ? devices + options : "";
  }

  // Whether what was clicked is what the kernel has: then no restart is needed for it.
  get isSame() {
    return Boolean(this.draft) && this.draft === (this.visible.join(",") || "none") + this.header.memory_options;
  }

  // A click on a device. A process can use one MIG instance, and no other GPU with it.
  toggle(key) {
    const { unavailable, parent } = this.rows[key];
    if (unavailable && !this.marked.includes(key)) return this.warn(unavailable);
    const marked = this.draft === "reset" ? [] : this.marked;
    const others = marked.filter((one) => one !== key);
    if (marked.includes(key)) return this.setDevices(others.join(","));
    const isAlone = parent || others.some((one) => this.rows[one].parent);
    this.setDevices((isAlone ? [key] : [...others, key]).join(","));
  }

  // Adds the GPUs that can be chosen, in this order.
  add(keys) {
    const isInstance = (key) => this.rows[key].parent;
    const added = keys.filter((key) => !this.rows[key].unavailable && !isInstance(key));
    if (!added.length) return this.toggle(keys.at(-1));
    const marked = this.draft === "reset" ? [] : this.marked;
    this.setDevices([...new Set([...marked.filter((key) => !isInstance(key)), ...added])].join(","));
  }

  pickLeastBusy(count) {
    const keys = this.header.least_busy.split(",").filter(Boolean);
    if (count >= 1 && count <= keys.length) return this.setDevices(keys.slice(0, count).join(","));
    this.warn(keys.length ? `From 1 to ${keys.length} can be picked.` : "None can be picked.");
  }
}

// A request: what one types after `%gpus`, devices and then options, `2,6 --growth --memory-limit 8GB`.
function splitRequest(request) {
  const [, devices, growth, limit] = /^(.*?)( --growth)?(?: --memory-limit (.*))?$/.exec(request);
  return { devices, growth: Boolean(growth), limit: limit ?? "" };
}

function joinRequest({ devices, growth, limit }) {
  return `${devices}${growth ? " --growth" : ""}${limit ? ` --memory-limit ${limit}` : ""}`;
}

// Calls a function when the page learns that its kernel has gone; returns what ends that.
function whenKernelIsLost(model, lose) {
  // By a restart, as the widget manager says.
  model.on("comm_live_update", lose);
  // By a shutdown or a crash, as JupyterLab and Notebook 7 tell; in other front ends, figures cease to come.
  const kernel = model.widget_manager?.kernel;
  const loseIfDead = (_kernel, status) => status === "dead" && lose();
  kernel?.disposed?.connect?.(lose);
  kernel?.statusChanged?.connect?.(loseIfDead);
  const stop = whenReplaced(kernel, lose);
  return () => {
    stop();
    kernel?.disposed?.disconnect?.(lose);
    kernel?.statusChanged?.disconnect?.(loseIfDead);
  };
}

// Restarts the kernel through the Jupyter server that this page comes from, as the page's own menu would: JupyterLab
// then shows no "appears to have died". Returns whether it did.
const RESTART_LIMIT = 8000; // milliseconds; the kernel waits a little longer before it restarts itself

async function restartThroughServer(kernel) {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
    const base = config.baseUrl ?? document.body.dataset.baseUrl;
    if (!kernel || !base) return false; // VS Code, Colab
    const url = new URL(`api/kernels/${encodeURIComponent(kernel)}/restart`, new URL(base, location.href));
    if (url.origin !== location.origin) return false;
    const headers = {};
    const xsrf = document.cookie.match(/(?:^|;\s*)_xsrf=([^;]*)/)?.[1];
    if (xsrf) headers["X-XSRFToken"] = decodeURIComponent(xsrf);
    if (config.token) headers.Authorization = `token ${config.token}`;
    const signal = AbortSignal.timeout(RESTART_LIMIT);
    const reply = await fetch(url, { method: "POST", headers, credentials: "same-origin", signal });
    // The server's own sockets have yet to find the new kernel: until then, what a cell prints can get lost.
    await new Promise((done) => setTimeout(done, 1000));
    return reply.ok;
  } catch {
    return false;
  }
}

// The session of the notebook that a widget is shown in; undefined where the page does not tell.
function findSession(model) {
  const session = model.widget_manager?.context?.sessionContext;
  return session?.iopubMessage ? session : undefined;
}

// The notebook of a panel, of JupyterLab and Notebook 7, in which "Restart Kernel and Run All Cells" is to choose the same
// GPUs: a widget is handed its notebook, and the panel of a chip by extension.js its own. Undefined in other front ends.
function findNotebook(model) {
  const notebook = (model.get("notebook") || model.widget_manager)?.context?.model?.sharedModel;
  return notebook?.insertCell && notebook.cells ? notebook : undefined;
}

// Writes a line in place of the one that was written before, else into a new cell, below the active one or the one whose
// output `element` is in. Returns whether there was a place for it.
function writeLine(model, line, element) {
  const notebook = findNotebook(model);
  const written = notebook.cells.find((cell) => cell.getMetadata("gpu_magic")?.is_choice);
  if (written && /^%gpus [\w,:. -]+$/.test(written.getSource())) {
    written.setSource(line);
    return true;
  }
  const output = element.closest(".jp-OutputArea")?.querySelector(".gm-fallback")?.dataset.place;
  const isHere = (cell) => output && JSON.stringify(cell.getOutputs?.() ?? []).includes(output);
  const place = model.get("notebook")?.content.activeCellIndex ?? notebook.cells.findIndex(isHere);
  if (place < 0) return false;
  written?.deleteMetadata("gpu_magic"); // it was changed by hand since, and is left alone
  notebook.insertCell(place + 1, { cell_type: "code", source: line, metadata: { gpu_magic: { is_choice: true } } });
  return true;
}
