// Says whether a view of the panel is visible: the kernel reads the machine only while one is.
const SAY_AGAIN = 15000; // milliseconds after which a page says again that a view is visible

class Visibility {
  constructor(element, store) {
    this.store = store;
    this.view = makeName();
    this.isVisible = null; // not known yet
    this.check = () => this.set(document.visibilityState === "visible" && element.offsetParent !== null);
    this.sizes = new ResizeObserver(this.check); // what is behind another tab of JupyterLab has no size
    this.sizes.observe(element);
    document.addEventListener("visibilitychange", this.check);
    this.leave = () => this.set(false);
    addEventListener("pagehide", this.leave);
    this.timer = setInterval(() => this.isVisible && this.say(), SAY_AGAIN);
  }

  set(isVisible) {
    if (isVisible === this.isVisible) return;
    this.isVisible = isVisible;
    // While nobody looked, nothing was sent: that is no silence of the kernel's.
    if (isVisible) this.store.heardAt = Date.now();
    this.say();
  }

  say() {
    if (this.isVisible !== null && !this.store.isGone) this.store.send(pageMessage.setVisibility(this.view, this.isVisible, this.store.version));
  }

  close() {
    this.set(false);
    clearInterval(this.timer);
    this.sizes.disconnect();
    document.removeEventListener("visibilitychange", this.check);
    removeEventListener("pagehide", this.leave);
  }
}
