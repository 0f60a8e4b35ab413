// The question before a restart. It is about what was clicked when it was asked, and not what is clicked since.
class RestartQuestion {
  // The buttons are hidden while it is asked. With "Restart", `restart` is called with the request.
  constructor(footer, buttons, restart) {
    this.buttons = buttons;
    this.request = null; // what is asked about; null: nothing
    this.element = footer.appendChild(make("span", "gm-question", { role: "alertdialog" }));
    this.element.hidden = true;
    this.text = this.element.appendChild(make("span", "", { id: `gm-question-${makeName()}` }));
    this.element.setAttribute("aria-labelledby", this.text.id);
    const yes = this.element.appendChild(makeFocusable("button", "gm-use", { type: "button" }));
    const no = this.element.appendChild(makeFocusable("button", "", { type: "button" }));
    setText(yes, "Restart");
    setText(no, "Cancel");
    yes.addEventListener("click", () => {
      const { request } = this;
      this.close();
      restart(request);
    });
    no.addEventListener("click", () => this.close());
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  ask(request) {
    this.request = request;
    setText(this.text, `Restart the kernel for %gpus ${request}? Its variables are lost.`);
    this.element.hidden = false;
    this.buttons.hidden = true;
    this.element.lastElementChild.focus();
  }

  close() {
    if (this.request === null) return;
    const hadFocus = this.element.contains(document.activeElement);
    this.request = null;
    this.element.hidden = true;
    this.buttons.hidden = false;
    if (hadFocus) this.buttons.querySelector(".gm-use").focus(); // and not where another panel has closed it
  }
}
