// Reports whether a view of the panel is visible and watched. Between cells, the kernel reads the machine
// only while a view is watched.
const SAY_AGAIN = 15000; // milliseconds between two reports that a view is watched, or not hidden during a cell
const UNWATCHED = 600000; // milliseconds without input after which a view counts as unwatched
const INPUT = ["pointermove", "pointerdown", "keydown", "wheel"];

class Visibility {
  // `open` returns the keys of the rows that are open; null for a chip.
  constructor(element, store, open) {
    this.store = store;
    this.open = open;
    this.view = makeName();
    this.state = null; // as in the message; null: not known yet
    this.isInSight = false;
    this.inputAt = Date.now();
    this.check = () => this.set(this.find());
    // An element that is scrolled away or behind another tab of JupyterLab does not intersect the window.
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
    // The kernel sends nothing while a view is not watched, so this time does not count as silence.
    if (state === "watched" && !this.store.isUnheard) this.store.heardAt = Date.now();
    this.say();
  }

  sayAgain() {
    const { state, store } = this;
    const isWanted = state === "watched" || (state === "unwatched" && store.isBusy);
    if (!isWanted || store.isUnheard) return; // the kernel would answer all reports after its cell
    this.check();
    if (this.state === state) this.say();
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
