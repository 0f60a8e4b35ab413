// What can be done where others have what was clicked: ask them for it, or wait for it. While it waits, a line says who has
// it, with "Cancel".
class WaitControls {
  constructor(store, panel, buttons) {
    this.store = store;
    this.ask = buttons.appendChild(makeFocusable("button", "", { type: "button", title: "Asks those who have claimed it, as %gpus 3 --ask does" }));
    this.ask.addEventListener("click", () => store.askOthers());
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
    const { store, ask, begin, cancel } = this;
    const focused = [ask, begin, cancel].find((one) => one === document.activeElement);
    const held = store.held.length;
    setText(begin, held === 1 ? "Wait for it" : "Wait for them");
    const claimed = store.claimed.length;
    setText(ask, claimed === 1 ? "Ask for it" : "Ask for them");
    ask.hidden = !claimed;
    begin.hidden = !held || store.isFrozen || Boolean(store.waitText);
    this.element.hidden = !store.waitText;
    setText(this.text, store.waitText);
    cancel.disabled = store.isDead;
    const isSeen = (one) => !one.closest("[hidden]");
    if (focused && !isSeen(focused)) [begin, cancel, use].find(isSeen)?.focus();
  }
}
