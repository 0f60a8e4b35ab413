// What others ask of this kernel, with the buttons that answer it.
class AskedView {
  constructor(store, panel) {
    this.store = store;
    this.element = panel.appendChild(make("div", "gm-asked", { role: "group", "aria-label": "Asked by others" }));
    this.text = this.element.appendChild(make("p", "", { role: "status" }));
    const button = (text, title, act) => {
      const element = this.element.appendChild(makeFocusable("button", "", { type: "button", title }));
      setText(element, text);
      element.addEventListener("click", act);
      return element;
    };
    this.buttons = [
      button("Give it up", "Does what %gpus --give-up does: frees memory, and ends the claim", () => store.giveUp()),
      button("Keep", "Says no, as %gpus --keep does", () => store.keep()),
    ];
  }

  // Where it goes, so does the focus.
  show(next) {
    const { store, element } = this;
    const asked = store.header.asked.join("\n");
    if (!asked && element.contains(document.activeElement)) next.focus();
    element.hidden = !asked;
    setText(this.text, asked);
    for (const button of this.buttons) button.disabled = store.isDead;
  }
}
