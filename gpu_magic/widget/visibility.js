// Says whether a view of the panel is visible, and to a person: the kernel reads the machine only while one is.
const SAY_AGAIN = 15000; // milliseconds after which a page says again that a view is watched
const UNWATCHED = 600000; // milliseconds without input after which nobody is taken to watch
const INPUT = ["pointermove", "pointerdown", "keydown", "wheel"];

class Visibility {
  // After a view has said that it is visible, `said` is called with its name.
  constructor(element, store, said = () => {}) {
    this.store = store;
    this.said = said;
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
    this.store.send(pageMessage.setVisibility(this.view, this.state, this.store.version));
    if (this.state !== "hidden") this.said(this.view);
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
