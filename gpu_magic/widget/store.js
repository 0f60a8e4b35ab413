// What a panel shows: the machine as the kernel last sent it, and what was clicked since.
// A page can show a panel in several views; all of them show this.
const ANSWER_LIMIT = 150; // milliseconds after which a click without an answer is waiting for the kernel
const FRESH = 60; // seconds
const SHOW_DONE = 2000; // milliseconds in which the rows show what a choice has done
const RESTART_TIME = 6000; // milliseconds after which a restart by another page or the kernel is done

class Store {
  constructor(model) {
    this.model = model;
    this.page = makeName();
    this.views = new Set();
    this.notice = { text: "", kind: "info" };
    this.isRestarting = false;
    this.isGone = false;
    this.reset(model.get("full_state"));
    model.on("msg:custom", (message) => this.receive(message));
    // A page that was loaded again asks for the whole state.
    model.on("change:full_state", () => this.reset(model.get("full_state")));
    // The widget manager says so when it has lost the kernel, by a restart for example.
    model.on("comm_live_update", () => this.lose());
  }

  reset(state) {
    // An exported page has the widget's state of then, and no kernel: nothing more comes.
    this.isLive ||= Math.abs(Date.now() / 1000 - state.time) < FRESH;
    this.tick = state.tick;
    this.version = state.version;
    this.header = state.header;
    this.rows = state.rows;
    this.figures = state.figures;
    this.order = state.order;
    this.history = state.history;
    this.draft = state.draft; // a request; "": nothing yet; null: nothing was clicked
    this.isPaused = state.is_paused;
    this.heardAt = Date.now();
    this.show(true);
  }

  receive(message) {
    this.heardAt = Date.now();
    this.isGone = false;
    this.isLive = true;
    if (message.type === "state") return this.reset(message.state);
    if ("version" in message && !this.follows(message.version)) return this.askAgain();
    switch (message.type) {
      case "changes":
      case "heartbeat":
        this.apply(message);
        break;
      case "draft":
        if (message.page !== this.page) this.draft = message.request;
        break;
      case "notice":
        this.notify(message.text, message.kind);
        break;
      case "paused":
        this.isPaused = message.is_paused;
        if (this.isPaused) this.draft = null;
        break;
      case "restarting":
        this.waitForRestart();
        break;
      case "restart":
        this.restart(message);
    }
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

  // A reading that changed nothing was not sent: its figures were those of before.
  apply({ tick, header = {}, rows = {}, figures = {} }) {
    if (tick <= this.tick) return;
    const missed = Math.min(tick - this.tick - 1, SAMPLES);
    for (const key of this.order) {
      const samples = (this.history[key] ??= []);
      const before = knownUtilization(this.figures[key]);
      Object.assign(this.rows[key], rows[key]);
      if (key in figures) this.figures[key] = figures[key];
      for (let again = 0; again < missed; again++) samples.push(before);
      samples.push(knownUtilization(this.figures[key]));
      samples.splice(0, samples.length - SAMPLES);
    }
    Object.assign(this.header, header);
    this.tick = tick;
    // What was done is old once something else has happened: a choice by typing, CUDA's initialization.
    const isNew = header.cuda_state || Object.values(rows).some((fields) => "visible_as" in fields);
    if (isNew && this.notice.kind === "done" && Date.now() - this.notifiedAt > SHOW_DONE) this.notify("", "info");
  }

  notify(text, kind) {
    clearTimeout(this.waiting);
    this.notice = { text, kind };
    this.notifiedAt = Date.now();
  }

  // Whether nothing would receive a click.
  get isDead() {
    return this.isGone || this.isRestarting || this.isPaused;
  }

  lose() {
    clearTimeout(this.losing);
    this.isGone = true;
    const restarted = "The kernel was restarted: the next %load_ext gpu_magic applies your choice.";
    const gone = "The kernel of this panel has gone: %load_ext gpu_magic and %gpu_panel make a new one.";
    this.notify(this.isRestarting ? restarted : gone, "warning");
    this.show();
  }

  send(message) {
    this.model.send(message);
  }

  setDraft(request) {
    this.draft = request;
    if (this.notice.kind !== "pending") this.notify(this.warning, "warning"); // what waits will still be done
    this.send(pageMessage.setDraft(request, this.page));
    this.show();
  }

  choose(restart, request = this.draft) {
    this.notify("", "info");
    const text = `%gpus ${request}: ${restart ? "restarts" : "applies"} when the kernel is free`;
    this.waiting = setTimeout(() => {
      this.notify(text, "pending");
      this.show();
    }, ANSWER_LIMIT);
    this.send(pageMessage.choose(request, restart, this.page));
    this.show();
  }

  waitForRestart() {
    this.isRestarting = true;
    this.notify("Restarting the kernel …", "pending");
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
    if (this.draft === "reset") return this.header.launch_devices.split(",").filter((key) => key in this.rows);
    if (this.draft !== null) return this.draft.split(",").filter((key) => key in this.rows);
    return this.header.hides_devices ? this.visible : [];
  }

  // Who uses what was clicked.
  get warning() {
    const busy = this.marked.filter((key) => this.rows[key].usage === "busy");
    const name = (key) => (this.rows[key].parent ? key : `GPU ${key}`);
    return busy.map((key) => `${name(key)} is in use. ${this.rows[key].users.join("; ")}`).join("\n");
  }

  get isFrozen() {
    return this.header.cuda_state === "frozen";
  }

  // Whether what was clicked is what the kernel has: then no restart is needed for it.
  get isSame() {
    return this.draft !== null && this.draft === (this.visible.join(",") || "none");
  }

  toggle(key) {
    const row = this.rows[key];
    const marked = this.draft === "reset" ? [] : this.marked;
    if (row.unavailable && !marked.includes(key)) {
      this.notify(row.unavailable, "warning");
      return this.show();
    }
    let keys = marked.includes(key) ? marked.filter((other) => other !== key) : [...marked, key];
    // A process can use one MIG instance, and no other GPU with it.
    if (keys.some((other) => this.rows[other]?.parent)) keys = keys.includes(key) ? [key] : [];
    this.setDraft(keys.join(","));
  }

  pickLeastBusy(count) {
    const keys = this.header.least_busy.split(",").filter(Boolean);
    if (!(count >= 1 && count <= keys.length)) {
      const text = keys.length ? `From 1 to ${keys.length} can be picked.` : "None can be picked.";
      this.notify(text, "warning");
      return this.show();
    }
    this.setDraft(keys.slice(0, count).join(","));
  }
}

// What the chart shows: null where the utilization is not known, or there is none.
function knownUtilization(figures) {
  const { utilization } = unpackFigures(figures);
  return typeof utilization === "number" ? utilization : null;
}
