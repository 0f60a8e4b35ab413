// Waits for what was clicked, if others have it. While it waits, a line says who has it, with "Cancel".
class WaitControls {
  constructor(store, panel, buttons) {
    this.store = store;
    this.begin = buttons.appendChild(makeFocusable("button", "gm-begin", { type: "button", title: "Choose them as soon as nobody else has them" }));
    this.begin.addEventListener("click", () => store.wait());
    this.element = panel.appendChild(make("div", "gm-wait", { role: "group", "aria-label": "Waiting" }));
    // No live region: the line changes with each look, and the hint says that it waits.
    this.text = this.element.appendChild(make("span"));
    this.cancel = this.element.appendChild(makeFocusable("button", "", { type: "button", "aria-label": "Cancel the waiting" }));
    setText(this.cancel, "Cancel");
    this.cancel.addEventListener("click", () => store.stopWaiting());
  }

  // Where one of the buttons gives way to the other, so does the focus; `use` has it where neither is shown.
  show(use) {
    const { store, begin, cancel } = this;
    const focused = [begin, cancel].find((one) => one === document.activeElement);
    const held = store.held.length;
    setText(begin, held === 1 ? "Wait for it" : "Wait for them");
    begin.hidden = !held || store.isFrozen || Boolean(store.waitText);
    this.element.hidden = !store.waitText;
    setText(this.text, store.waitText);
    cancel.disabled = store.isDead;
    const isSeen = (one) => !one.closest("[hidden]");
    if (focused && !isSeen(focused)) [begin, cancel, use].find(isSeen)?.focus();
  }
}
