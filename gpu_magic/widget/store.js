// What a panel shows: the machine as the kernel last sent it, what was clicked, and what is said of it.
// A page can show a panel in several views; all of them show this.
const ANSWER_LIMIT = 150; // milliseconds after which a choice without an answer is waiting for the kernel
const SILENCE = 20000; // milliseconds without a message from the kernel, which sends one every ten seconds
const RESTART_TIME = 6000; // milliseconds after which a restart by another page or the kernel is done

class Store {
  constructor(model) {
    this.model = model;
    this.page = makeName();
    this.views = new Set();
    this.details = new Map(); // of rows that are open in some view, by key
    this.notice = { text: "", kind: "info" };
    this.isLive = false; // a page without a kernel has the state of then, and shows the table: see `receive`
    this.isRestarting = false;
    this.isGone = false;
    this.isWaiting = false; // for what becomes of a choice
    this.isWaitAsked = false; // and has asked for a wait for GPUs that others have
    this.waitText = ""; // who has those; empty: nothing is waited for
    this.clicks = new Clicks(this.page, (message) => this.send(message));
    this.reset(model.get("full_state"));
    model.on("msg:custom", (message) => this.receive(message));
    // A page that was loaded again asks for the whole state. ipywidgets hands it over later than messages that were sent
    // after it: then it is old.
    model.on("change:full_state", () => {
      const state = model.get("full_state");
      if (!(state.version < this.version)) this.reset(state);
    });
    this.close = whenKernelIsLost(model, () => this.lose());
  }

  reset(state) {
    this.process = state.process;
    this.second = state.second;
    this.version = state.version;
    this.header = state.header;
    this.rows = state.rows;
    this.figures = state.figures;
    this.order = state.order;
    this.history = state.history;
    this.clicks.reset({ request: state.draft, number: state.draft_number, clicks: state.clicks });
    if (!this.isRestarting && !(this.isWaiting && state.is_waiting)) this.answer(...state.said);
    this.waitText = state.waiting;
    this.isPaused = state.is_paused;
    this.heardAt = Date.now();
    this.show(true);
  }

  receive(message) {
    this.heardAt = Date.now();
    if (this.isGone) this.notify("", "info");
    this.isGone = false;
    this.isLive = true; // a kernel has sent it: a page without one has nobody who would
    if (message.type === "state") return this.reset(message.state);
    if ("version" in message && !this.follows(message.version)) return this.askAgain();
    switch (message.type) {
      case "changes":
      case "heartbeat":
        this.apply(message);
        break;
      case "detail":
        this.apply(message); // the history of its memory goes up to then
        this.details.set(message.key, { ...this.details.get(message.key), ...message.detail });
        break;
      case "draft":
        // Of this page's own clicks it was forgotten when they were made: what was said since is about what is shown.
        if (this.clicks.take(message) && message.page !== this.page) this.forgetNotice();
        break;
      case "outdated":
        if (this.clicks.repeat(message)) this.forgetNotice();
        break;
      case "notice":
        if (message.kind === "done") this.clicks.settle();
        this.answer(message.text, message.kind, message.warnings);
        break;
      case "waiting":
        if (this.isWaitAsked) this.answer("", "info");
        this.waitText = message.text;
        break;
      case "paused":
        this.isPaused = message.is_paused;
        break;
      case "restarting":
        this.waitForRestart();
        break;
      case "restart":
        this.restart(message);
    }
    this.clicks.remind();
    this.show();
  }

  // Messages get lost: a server drops some where a cell prints too much, and a connection can break.
  follows(version) {
    if (version > this.version + 1) return false;
    this.version = Math.max(this.version, version);
    return true;
  }

  // The kernel answers with the whole state where the version is not its own.
  askAgain() {
    for (const view of this.views) view.visibility.say();
  }

  apply({ second, unbroken, header = {}, rows = {}, figures = {} }) {
    if (second < this.second) return;
    const extend = sampler(this.second, { second, unbroken });
    for (const key of this.order) {
      const before = this.figures[key];
      Object.assign(this.rows[key], rows[key]);
      if (key in figures) this.figures[key] = figures[key];
      extend((this.history[key] ??= []), knownUtilization(before), knownUtilization(this.figures[key]));
      const memory = this.details.get(key)?.memory;
      if (memory) extend(memory, knownMemory(before), knownMemory(this.figures[key]));
    }
    Object.assign(this.header, header);
    this.second = second;
  }

  notify(text, kind, warnings) {
    this.notice = { text, kind, warnings };
  }

  // What the kernel says: it ends the wait for what becomes of a choice.
  answer(text, kind, warnings) {
    clearTimeout(this.waiting);
    this.isWaiting = this.isWaitAsked = false;
    this.notify(text, kind, warnings);
  }

  // Whether nothing would receive a click.
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
    this.clicks.drop();
    if (!this.model.isClosed) this.answer(this.lossText, "warning"); // else the kernel has said why
    this.show();
    this.whenLost?.();
  }

  get lossText() {
    const [goesOn, stays] = this.isRestarting ? RESTARTED : GONE;
    return this.model.isFollowed || findSession(this.model) ? goesOn : stays;
  }

  // A widget manager throws where it has no kernel any more, also while its notebook is closed.
  send(message) {
    if (this.isGone) return;
    try {
      this.model.send(message);
    } catch {
      this.lose();
    }
  }

  // What was clicked and is not applied yet; see `Clicks`.
  get draft() {
    return this.clicks.draft;
  }

  click(change) {
    this.forgetNotice();
    this.clicks.add(change);
    this.show();
  }

  setDraft(request) {
    this.click(() => request);
  }

  // Changes the devices of the draft, by a function from the draft to them; the options stay.
  setDevices(find) {
    this.click((draft) => joinRequest({ ...splitRequest(draft ?? this.header.memory_options), devices: find(draft) }));
  }

  // Changes the options of the draft, which begins with the devices that are marked.
  setMemory(changed) {
    this.click((draft) => {
      const request = draft ?? this.markedBy(draft).join(",") + this.header.memory_options;
      return joinRequest({ ...splitRequest(request), ...changed });
    });
  }

  warn(text) {
    this.notify(text, "warning");
    this.show();
  }

  // What was said was about another draft; but what waits will still be done.
  forgetNotice() {
    if (!this.isWaiting && !this.isRestarting) this.notify("", "info");
  }

  choose(restart, request = this.draft) {
    this.clicks.choose();
    const text = `%gpus ${request}: ${restart ? "restarts" : "applies"} when the kernel is free`;
    this.ask(pageMessage.choose(request, restart, this.page), text);
  }

  // Chooses what was clicked as soon as nobody else has it.
  wait() {
    this.clicks.choose();
    this.ask(pageMessage.wait(this.draft), `%gpus ${this.draft}: waits as soon as the kernel is free`);
    this.isWaitAsked = true;
  }

  stopWaiting() {
    this.ask(pageMessage.stopWaiting(), "The waiting ends when the kernel is free");
    this.isWaitAsked = true;
  }

  // Frees what `%gpu_free` does; what comes of it is said.
  free() {
    this.ask(pageMessage.free(), "Frees memory when the kernel is free");
  }

  // Asks the kernel for something, and says so where the answer does not come at once.
  ask(message, text) {
    this.answer("", "info");
    this.isWaiting = true;
    this.waiting = setTimeout(() => {
      this.notify(text, "pending");
      this.show();
    }, ANSWER_LIMIT);
    this.send(message);
    this.show();
  }

  waitForRestart() {
    this.isRestarting = true;
    this.answer("Restarting the kernel …", "pending");
    // A page does not learn of a restart that another page has asked the server for.
    this.losing = setTimeout(() => this.lose(), RESTART_TIME);
  }

  async restart(message) {
    if (await answerRestart(message, this.page, (answer) => this.send(answer))) this.lose();
  }

  show(isNew = false) {
    for (const view of this.views) view.show(isNew);
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
    return this.markedBy(this.draft);
  }

  markedBy(draft) {
    if (draft === null) return this.header.hides_devices ? this.visible : [];
    const devices = draft === "reset" ? this.header.launch_devices : devicesOf(draft);
    return devices.split(",").filter((key) => key in this.rows);
  }

  // What is said below the rows: of the latest event, else of what was clicked.
  get said() {
    if (this.isSilent && !this.isGone) return { text: SILENT, kind: "warning" };
    if (this.notice.text || this.draft === null || this.waitText) return this.notice;
    return { text: this.warning, kind: "warning" };
  }

  // Who uses or has claimed what was clicked.
  get warning() {
    const busy = this.marked.filter((key) => this.rows[key].usage === "busy");
    const name = (key) => (this.rows[key].parent ? key : `GPU ${key}`);
    const isUsed = (users) => users.some((user) => !user.startsWith("claimed by "));
    const text = (users) => `${isUsed(users) ? "in use. " : ""}${users.join("; ")}`;
    return busy.map((key) => `${name(key)} is ${text(this.rows[key].users)}`).join("\n");
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
    const all = this.visible.join(",") || "none";
    return this.draft !== null && this.draft === all + this.header.memory_options;
  }

  toggle(key) {
    const row = this.rows[key];
    if (row.unavailable && !this.marked.includes(key)) return this.warn(row.unavailable);
    this.setDevices((draft) => this.toggled(key, draft));
  }

  // Adds the GPUs that can be chosen, in this order. A process can use one MIG instance, and no other GPU with it.
  add(keys) {
    const isInstance = (key) => this.rows[key]?.parent;
    const added = keys.filter((key) => !this.rows[key].unavailable && !isInstance(key));
    if (!added.length) return this.toggle(keys.at(-1));
    this.setDevices((draft) => {
      const marked = draft === "reset" ? [] : this.markedBy(draft);
      return [...new Set([...marked.filter((key) => !isInstance(key)), ...added])].join(",");
    });
  }

  toggled(key, draft) {
    const marked = draft === "reset" ? [] : this.markedBy(draft);
    const keys = marked.includes(key) ? marked.filter((other) => other !== key) : [...marked, key];
    if (keys.some((other) => this.rows[other]?.parent)) return keys.includes(key) ? key : "";
    return keys.join(",");
  }

  pickLeastBusy(count) {
    const keys = this.header.least_busy.split(",").filter(Boolean);
    if (!(count >= 1 && count <= keys.length)) {
      return this.warn(keys.length ? `From 1 to ${keys.length} can be picked.` : "None can be picked.");
    }
    this.setDevices(() => keys.slice(0, count).join(","));
  }
}
