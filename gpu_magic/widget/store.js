// What a panel shows: the machine as the kernel last told it, and what was clicked since. A panel can be shown
// in several places of a page, and all of them show this.
const PATIENCE = 150; // milliseconds after which a click that was not answered is waiting for the kernel

const FRESH = 60; // seconds
const NEWS = 2000; // milliseconds in which the rows show what a choice has done
const RESTART = 6000; // milliseconds after which a restart is done, where this page is not the one that does it

class Store {
  constructor(model) {
    this.model = model;
    this.page = newPage();
    this.views = new Set();
    this.said = { text: "", kind: "info" };
    this.isRestarting = false;
    this.isGone = false;
    this.reset(model.get("machine"));
    model.on("msg:custom", (message) => this.hear(message));
    // A page that was loaded anew is told all at once.
    model.on("change:machine", () => this.reset(model.get("machine")));
    // The widget manager says so when it has lost the kernel, by a restart for example.
    model.on("comm_live_update", () => this.lose());
  }

  reset(all) {
    // A page that was exported has the widget, and no kernel: what it was told is old, and nothing more comes.
    this.isLive ||= Math.abs(Date.now() / 1000 - all.at) < FRESH;
    this.tick = all.tick;
    this.version = all.version;
    this.head = all.head;
    this.rows = all.rows;
    this.now = all.now;
    this.order = all.order;
    this.history = all.history;
    this.draft = all.draft;
    this.isPaused = all.paused;
    this.heardAt = Date.now();
    this.show(true);
  }

  hear(message) {
    this.heardAt = Date.now();
    this.isGone = false;
    this.isLive = true;
    if (message.all) return this.reset(message.all);
    if ("version" in message && !this.follows(message.version)) return this.askAgain();
    if (message.tick) this.count(message);
    if ("draft" in message && message.page !== this.page) this.draft = message.draft;
    if (message.said) this.say(message.said.text, message.said.kind);
    if ("paused" in message) this.pause(message.paused);
    if (message.restarting) this.waitForRestart();
    if (message.restart) this.restart(message.restart);
    this.show();
  }

  // Messages get lost: a server drops them where a cell prints too much, and a connection can break.
  follows(version) {
    if (version > this.version + 1) return false;
    this.version = Math.max(this.version, version);
    return true;
  }

  askAgain() {
    for (const view of this.views) view.see(view.isSeen, true);
  }

  // A tick in which nothing changed was not sent: the figures were those of before.
  count({ tick, head, rows, now }) {
    if (tick <= this.tick) return;
    const missed = Math.min(tick - this.tick - 1, SAMPLES);
    for (const key of this.order) {
      const samples = (this.history[key] ??= []);
      const before = utilization(this.now[key]);
      Object.assign(this.rows[key], rows?.[key]);
      if (now && key in now) this.now[key] = now[key];
      for (let again = 0; again < missed; again++) samples.push(before);
      samples.push(utilization(this.now[key]));
      samples.splice(0, samples.length - SAMPLES);
    }
    Object.assign(this.head, head);
    this.tick = tick;
    // What was done is no news any more once something else has happened: a choice by typing, CUDA's start.
    const isNews = head?.state || Object.values(rows ?? {}).some((fields) => "here" in fields);
    if (isNews && this.said.kind === "done" && Date.now() - this.saidAt > NEWS) this.say("", "info");
  }

  say(text, kind) {
    clearTimeout(this.waiting);
    this.said = { text, kind };
    this.saidAt = Date.now();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    if (isPaused) this.draft = null;
  }

  // Whether nothing that is clicked would be heard.
  get isDead() {
    return this.isGone || this.isRestarting || this.isPaused;
  }

  lose() {
    clearTimeout(this.losing);
    this.isGone = true;
    const back = "The kernel was restarted: the next %load_ext gpu_magic applies your choice.";
    const anew = "The kernel of this panel has gone: %load_ext gpu_magic and %gpu_panel make a new one.";
    this.say(this.isRestarting ? back : anew, "warning");
    this.show();
  }

  ask(message) {
    this.model.send({ ...message, page: this.page });
  }

  // What is clicked, as what one types behind %gpus; "" for nothing yet, null for what is chosen already.
  pick(wanted) {
    this.draft = wanted;
    if (this.said.kind !== "pending") this.say(this.warning, "warning"); // what waits will still be done
    this.ask({ do: "draft", wanted });
    this.show();
  }

  wish(what, wanted = this.draft) {
    this.say("", "info");
    const text = `%gpus ${wanted}: ${what === "restart" ? "restarts" : "applies"} when the kernel is free`;
    this.waiting = setTimeout(() => {
      this.say(text, "pending");
      this.show();
    }, PATIENCE);
    this.ask({ do: what, wanted });
    this.show();
  }

  waitForRestart() {
    this.isRestarting = true;
    this.say("Restarting the kernel …", "pending");
    // Front ends are not told of a restart that somebody else has asked for.
    this.losing = setTimeout(() => this.lose(), RESTART);
  }

  async restart(wish) {
    if (await answerRestart(wish, this.page, (answer) => this.ask(answer))) this.lose();
  }

  show(isNew = false) {
    for (const view of this.views) view.show(isNew);
  }

  // The devices that this kernel sees, in the order of cuda:i.
  get present() {
    const place = (key) => Number(this.rows[key].here.slice("cuda:".length));
    const seen = this.order.filter((key) => this.rows[key].here.startsWith("cuda:"));
    return seen.sort((one, other) => place(one) - place(other));
  }

  // The devices that are marked: those that were clicked, else those that were chosen. Where all are visible,
  // nothing was chosen.
  get marked() {
    if (this.draft === "reset") return this.head.given.split(",").filter((key) => key in this.rows);
    if (this.draft !== null) return this.draft.split(",").filter((key) => key in this.rows);
    return this.head.chosen ? this.present : [];
  }

  // Who is on what was clicked.
  get warning() {
    const busy = this.marked.filter((key) => this.rows[key].kind === "busy");
    const name = (key) => (this.rows[key].part ? key : `GPU ${key}`);
    return busy.map((key) => `${name(key)} is in use. ${this.rows[key].users.join("; ")}`).join("\n");
  }

  get isFrozen() {
    return this.head.state === "frozen";
  }

  // Whether what was clicked is what the kernel has: then there is nothing to restart for.
  get isSame() {
    return this.draft !== null && this.draft === (this.present.join(",") || "none");
  }

  toggle(key) {
    const row = this.rows[key];
    const marked = this.draft === "reset" ? [] : this.marked;
    if (row.why && !marked.includes(key)) {
      this.say(row.why, "warning");
      return this.show();
    }
    let wanted = marked.includes(key) ? marked.filter((one) => one !== key) : [...marked, key];
    // One process can use one MIG instance, and no other GPU beside it.
    if (wanted.some((one) => this.rows[one]?.part)) wanted = wanted.includes(key) ? [key] : [];
    this.pick(wanted.join(","));
  }

  pickLeastBusy(count) {
    const least = this.head.least.split(",").filter(Boolean);
    if (!(count >= 1 && count <= least.length)) {
      const text = least.length ? `From 1 to ${least.length} can be picked.` : "None can be picked.";
      this.say(text, "warning");
      return this.show();
    }
    this.pick(least.slice(0, count).join(","));
  }
}

const WORDS = { none: "Use none", reset: "Use as started" };
