// The state of a panel: the machine as the kernel last sent it, the clicked choice, and a notice. All views
// of the panel in a page show this state. messages.py lists the messages.
const ANSWER_LIMIT = 150; // milliseconds without an answer after which a notice says that the kernel is busy
const SILENCE = 20000; // milliseconds without a message; the kernel sends one in 1 or 5 s, or tells the pause
const RESTART_TIME = 6000; // milliseconds in which another page or the kernel restarts it
/** @typedef {{ text: string, kind: string, warnings?: string[] }} Notice what a view shows below the rows */
/** @type {Notice} */
const NOTHING = { text: "", kind: "info", warnings: [] };

// For pages that can find the panel's next kernel, and for pages that can't.
const RESTARTED = [
  "The kernel was restarted. Run %load_ext gpu_magic to apply the saved choice and continue this panel.",
  "The kernel was restarted. Run %load_ext gpu_magic to apply the saved choice, then %gpu_panel.",
];
const GONE = [
  "This panel's kernel has ended. Run %load_ext gpu_magic to continue this panel.",
  "This panel's kernel has ended. Run %load_ext gpu_magic, then %gpu_panel.",
];
const SILENT = "The kernel does not answer. If this message stays, restart the kernel.";

// Who uses a device (`UsedBy` of devices/model.py) in parts of a line. Together they are its text.
function userParts([who, what, held, since]) {
  const parts = [
    ["who", who],
    ["what", what && `: ${what}`],
    ["held", held && ` ${held}`],
    ["since", since && ` ${since}`],
  ].filter(([, text]) => text);
  return parts.map(([name, text], index) => [name, parts[index + 1]?.[1].startsWith(" ") ? `${text},` : text]);
}

const userText = (user) =>
  userParts(user)
    .map(([, text]) => text)
    .join("");

class Store {
  constructor(model) {
    this.model = model;
    this.page = makeName();
    this.views = new Set();
    // The clicked choice that is not applied yet: a request; "": no device yet; null: nothing was clicked.
    /** @type {string | null} */
    this.draft = null;
    /** @type {string | null | undefined} */
    this.requested = undefined; // the draft that was sent to the kernel
    /** @type {Notice} */
    this.notice = NOTHING;
    /** @type {(() => void) | undefined} */
    this.whenLost = undefined; // set by a place that can show the next kernel's panel
    this.isLive = false; // a page without a kernel has a saved state, and shows the table: see `receive`
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
    const { type, state, ...times } = message;
    if (type !== "state" && type !== "same") return;
    if (this.isGone) this.notice = NOTHING;
    this.isGone = false;
    this.isLive = true; // only a kernel sends states
    this.take(state ?? { ...this.latest, ...times });
  }

  take(state) {
    const wasSame = this.isSame;
    this.heardAt = Date.now();
    this.keepHistory(state);
    const { history, ...latest } = state;
    this.latest = latest;
    this.pause = 1000 * (state.pause ?? 0); // milliseconds
    this.isBusy = state.is_busy;
    this.header = state.header;
    this.rows = Object.fromEntries(state.rows.map((row) => [row.key, row]));
    this.order = state.rows.map(({ key }) => key);
    this.process = state.process;
    this.second = state.second;
    this.details = state.details;
    this.isPaused = state.is_paused;
    const { said, waiting } = state;
    const isSaid = said.number !== this.said?.number;
    if (isSaid || waiting !== this.waitText) this.stopAsking();
    // The draft stays until the kernel has this choice, whoever made it.
    const isDone = isSaid && said.kind === "done" && this.draft === this.requested;
    if (isDone || (this.isSame && !wasSame) || this.isPaused) this.draft = null;
    if (isSaid && said.text) this.requested = undefined;
    if (isSaid && !this.isRestarting) this.notice = said;
    this.said = said;
    this.waitText = waiting;
    if (state.is_restarting && !this.isRestarting) this.waitForRestart();
    this.show();
  }

  // Utilization in percent, an item per second, the latest last; null: unknown or not read.
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

  // A widget manager throws if its kernel has ended, also while its notebook is being closed.
  send(type, values = {}) {
    if (this.isGone) return;
    try {
      this.model.send({ type, ...values });
    } catch {
      this.lose();
    }
  }

  // Whether the kernel would not react. Controls are then dimmed.
  get isDead() {
    return this.isGone || this.isRestarting || this.isPaused || this.isSilent;
  }

  // Whether the kernel sends nothing although a view is watched.
  get isSilent() {
    return this.isOverdue && [...this.views].some((view) => view.visibility.state === "watched");
  }

  get isOverdue() {
    return this.silence > this.pause + SILENCE;
  }

  // Whether the kernel does not hear this page before its cell ends, and therefore seldom sends a state.
  get isUnheard() {
    return this.pause > 0 && !this.isOverdue;
  }

  get silence() {
    return Date.now() - this.heardAt;
  }

  lose() {
    clearTimeout(this.losing);
    this.isGone = true;
    this.waitText = "";
    this.stopAsking();
    if (!this.model.isClosed) this.notice = { text: this.lossText, kind: "warning" }; // else the kernel has sent the reason
    this.show();
    this.whenLost?.();
  }

  get lossText() {
    const [goesOn, stays] = this.isRestarting ? RESTARTED : GONE;
    return this.model.isFollowed || findSession(this.model) ? goesOn : stays;
  }

  // Sends a message, and shows a text if the answer takes longer than `ANSWER_LIMIT`.
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

  // Chooses the clicked GPUs as soon as they are free.
  wait() {
    this.requested = this.draft;
    this.ask("wait", { request: this.draft }, `%gpus ${this.draft}: starts to wait when the kernel is free`);
  }

  stopWaiting() {
    this.ask("stop_waiting", {}, "Waiting stops when the kernel is free");
  }

  // Frees memory as `%gpu_free` does. The kernel sends the result as a notice.
  free() {
    this.ask("free", {}, "Frees memory when the kernel is free");
  }

  waitForRestart() {
    this.stopAsking();
    this.isRestarting = true;
    this.notice = { text: "Restarting the kernel …", kind: "pending" };
    // A page is not told of a restart that another page requested from the server.
    this.losing = setTimeout(() => this.lose(), RESTART_TIME);
  }

  // Only the page that the kernel names restarts it.
  async restart({ kernel, page }) {
    if (page && page !== this.page) return;
    const answer = (can) => this.send("answer_restart", { page: this.page, can });
    answer(true);
    if (!page) return; // the kernel will name one of the pages that can
    if (await restartThroughServer(kernel)) this.lose();
    else answer(false);
  }

  show() {
    for (const view of this.views) view.show();
  }

  // Removes a notice about the old draft, but not one about a pending request.
  change(draft) {
    if (!this.isAsking && !this.isRestarting) this.notice = NOTHING;
    this.draft = draft;
    this.show();
  }

  // Changes the devices of the draft and keeps its options, except filters that go with `auto` alone.
  setDevices(devices) {
    const { options } = splitRequest(this.draft ?? this.header.memory_options);
    for (const { name, needs_auto: needsAuto } of OPTIONS) if (needsAuto) delete options[name];
    this.change(joinRequest({ devices, options }));
  }

  // Changes an option of the draft. A new draft has the marked devices. A filter makes it `auto`, for as many.
  setOption({ name, needs_auto: needsAuto }, value) {
    const request = this.draft ?? this.marked.join(",") + this.header.memory_options;
    const { devices, options } = splitRequest(request);
    const isAuto = needsAuto && value && !devices.startsWith("auto");
    const changed = isAuto ? `auto:${Math.max(1, this.marked.length)}` : devices;
    this.change(joinRequest({ devices: changed, options: { ...options, [name]: value } }));
  }

  warn(text) {
    this.notice = { text, kind: "warning" };
    this.show();
  }

  // The devices that are visible in this kernel, in the order of cuda:i.
  get visible() {
    const ordinal = (key) => Number(this.rows[key].visible_as.slice("cuda:".length));
    const keys = this.order.filter((key) => this.rows[key].visible_as.startsWith("cuda:"));
    return keys.sort((first, second) => ordinal(first) - ordinal(second));
  }

  // The marked devices: the clicked ones, else the chosen ones. If all devices are visible, none was chosen.
  get marked() {
    if (this.draft === null) return this.header.hides_devices ? this.visible : [];
    const devices = this.draft === "reset" ? this.header.launch_devices : splitRequest(this.draft).devices;
    return devices.split(",").filter((key) => key in this.rows);
  }

  // The notice below the rows: about the latest event, else about the clicked devices.
  get shownNotice() {
    if (this.isSilent && !this.isGone) return { text: SILENT, kind: "warning" };
    if (this.notice.text || this.draft === null || this.isWaiting) return this.notice;
    return { text: this.warning, kind: "warning" };
  }

  // Who uses or has claimed the clicked devices.
  get warning() {
    const name = ({ key, parent }) => (parent ? key : `GPU ${key}`);
    const isUsed = (users) => users.some(([, , memory]) => memory); // else they say so
    const busy = this.marked.map((key) => this.rows[key]).filter((row) => row.usage === "busy");
    return busy
      .map((row) => `${name(row)} is ${isUsed(row.users) ? "in use. " : ""}${row.users.map(userText).join("; ")}`)
      .join("\n");
  }

  // The clicked devices that another process uses or has claimed.
  get held() {
    const isNamed = this.draft !== null && this.draft !== "reset";
    return isNamed ? this.marked.filter((key) => this.rows[key].is_held) : [];
  }

  // Whether the kernel waits for the clicked devices. It may also wait for others.
  get isWaiting() {
    return Boolean(this.waitText) && this.draft === this.requested;
  }

  get isFrozen() {
    return this.header.cuda_state === "frozen";
  }

  // The choice of the kernel as a request; empty if nothing was chosen.
  get applied() {
    const { hides_devices: hides, memory_options: options } = this.header;
    const devices = hides ? this.visible.join(",") || "none" : "all";
    return hides || options ? devices + options : "";
  }

  // Whether the kernel already has the clicked choice, so that it needs no restart.
  get isSame() {
    return Boolean(this.draft) && this.draft === (this.visible.join(",") || "none") + this.header.memory_options;
  }

  // Marks or unmarks a device. A process can use one MIG instance, but no other GPU with it.
  toggle(key) {
    const { unavailable, parent } = this.rows[key];
    if (unavailable && !this.marked.includes(key)) return this.warn(unavailable);
    const marked = this.draft === "reset" ? [] : this.marked;
    const others = marked.filter((one) => one !== key);
    if (marked.includes(key)) return this.setDevices(others.join(","));
    const isAlone = parent || others.some((one) => this.rows[one].parent);
    this.setDevices((isAlone ? [key] : [...others, key]).join(","));
  }

  // Adds those of the GPUs that can be chosen, in this order.
  add(keys) {
    const isInstance = (key) => this.rows[key].parent;
    const added = keys.filter((key) => !this.rows[key].unavailable && !isInstance(key));
    if (!added.length) return this.toggle(keys.at(-1));
    const marked = this.draft === "reset" ? [] : this.marked;
    this.setDevices([...new Set([...marked.filter((key) => !isInstance(key)), ...added])].join(","));
  }

  pickLeastBusy(count) {
    const { options } = splitRequest(this.draft ?? this.header.memory_options);
    const isFiltered = OPTIONS.some((one) => one.is_filter && options[one.name]);
    if (isFiltered && count >= 1) return this.change(joinRequest({ devices: `auto:${count}`, options }));
    const keys = this.header.least_busy.split(",").filter(Boolean);
    if (count >= 1 && count <= keys.length) return this.setDevices(keys.slice(0, count).join(","));
    this.warn(keys.length ? `From 1 to ${keys.length} can be picked.` : "None can be picked.");
  }
}

// A request is the text after `%gpus`, devices and then options: `2,6 --growth --memory-limit 8GB`.
function splitRequest(request) {
  const [devices, ...given] = request.split(/ (?=--)/);
  const options = {}; // by name; true: a flag
  for (const one of given) {
    const [name, ...words] = one.split(" ");
    options[name] = words.join(" ") || true;
  }
  return { devices, options };
}

function joinRequest({ devices, options }) {
  const given = OPTIONS.filter(({ name }) => options[name]);
  return devices + given.map(({ name, is_flag: isFlag }) => ` ${name}${isFlag ? "" : ` ${options[name]}`}`).join("");
}

// Calls a function when the page learns that its kernel has ended. Returns a function that stops this.
function whenKernelIsLost(model, lose) {
  // The widget manager reports a restart.
  model.on("comm_live_update", lose);
  // JupyterLab and Notebook 7 report a shutdown or a crash. In other front ends, the messages only stop.
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

// Restarts the kernel through the Jupyter server of this page, as the page's own menu does. JupyterLab then
// shows no "appears to have died". Returns whether the restart succeeded.
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
    // Output of cells can get lost until the server's own sockets have found the new kernel.
    await new Promise((done) => setTimeout(done, 1000));
    return reply.ok;
  } catch {
    return false;
  }
}

// The session of the notebook that shows a widget; undefined if the page does not provide it.
function findSession(model) {
  const session = model.widget_manager?.context?.sessionContext;
  return session?.iopubMessage ? session : undefined;
}

// The notebook that gets a cell with the choice, for "Restart Kernel and Run All Cells". JupyterLab and
// Notebook 7 give it to a widget, extension.js gives it to a chip's panel. Undefined in other front ends.
function findNotebook(model) {
  const notebook = (model.get("notebook") || model.widget_manager)?.context?.model?.sharedModel;
  return notebook?.insertCell && notebook.cells ? notebook : undefined;
}

// Replaces the line that was written before, else writes the line into a new cell, below the active cell or
// the cell whose output contains `element`. Returns whether a place was found.
function writeLine(model, line, element) {
  const notebook = findNotebook(model);
  const written = findChoice(notebook);
  if (written) {
    written.setSource(written.getSource().replace(/%gpus .*$/, line));
    return true;
  }
  const output = element.closest(".jp-OutputArea")?.querySelector(".gm-fallback")?.dataset.place;
  const isHere = (cell) => output && JSON.stringify(cell.getOutputs?.() ?? []).includes(output);
  const place = model.get("notebook")?.content.activeCellIndex ?? notebook.cells.findIndex(isHere);
  if (place < 0) return false;
  notebook.insertCell(place + 1, { cell_type: "code", source: line, metadata: { gpu_magic: { is_choice: true } } });
  return true;
}
