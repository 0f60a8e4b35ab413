// The processes of a row that is open. One's own can be ended: after a question by TERM, and if that is of no use by KILL.
class ProcessList {
  // When the process that has the focus is gone, `leave` takes it elsewhere.
  constructor(store, leave) {
    this.store = store;
    this.leave = leave;
    this.views = new Map(); // by what tells processes apart
    const id = `gm-processes-${makeName()}`;
    this.element = make("div", "gm-detail-processes");
    setText(this.element.appendChild(make("p", "gm-detail-title", { id })), "Processes");
    this.list = this.element.appendChild(make("ul", "", { "aria-labelledby": id }));
    this.note = this.element.appendChild(make("p", "gm-detail-note"));
  }

  show(row, { processes, is_listed: isListed }) {
    const found = new Map((processes ?? []).map((one) => [`${one.pid}/${one.started}`, one]));
    for (const [name, view] of this.views) {
      if (found.has(name)) continue;
      if (view.element.contains(document.activeElement)) this.leave();
      view.element.remove();
      this.views.delete(name);
    }
    let last = null;
    for (const [name, process] of found) {
      if (!this.views.has(name)) this.views.set(name, new ProcessView(this.store));
      const view = this.views.get(name);
      view.show(process);
      // Those that are there already are not moved: they could have the focus.
      const place = last ? last.nextSibling : this.list.firstChild;
      if (place !== view.element) this.list.insertBefore(view.element, place);
      last = view.element;
    }
    this.list.hidden = !found.size;
    // Without processes the row says why: it is free, is lost, or is used by whom can't be seen.
    const isNone = isListed && row.usage === "free";
    setText(this.note, found.size || !processes ? "" : isNone ? "none" : row.users.join("\n"));
  }
}

class ProcessView {
  constructor(store) {
    this.store = store;
    this.element = make("li", "gm-process");
    this.title = this.element.appendChild(make("span", "gm-detail-name"));
    this.memory = this.element.appendChild(make("span", "gm-detail-size"));
    this.facts = this.element.appendChild(make("span", "gm-process-facts"));
    this.button = this.element.appendChild(makeFocusable("button", "gm-quiet gm-end", { type: "button" }));
    this.button.addEventListener("click", () => this.ask());
  }

  show(process) {
    this.process = process;
    // A disabled button would lose the focus.
    setAttribute(this.button, "aria-disabled", process.step === "wait" || this.store.isDead ? "true" : null);
    const state = JSON.stringify(process);
    if (state === this.state) return;
    this.state = state;
    const { pid, title, folder, notebook, whose, owner, age, memory, step } = process;
    setText(this.title, title);
    setAttribute(this.title, "title", title);
    setText(this.memory, memory);
    const number = title.endsWith(` ${pid}`) ? "" : `PID ${pid}`;
    const facts = [owner, number, age && `for ${age}`, folder && `in ${folder}`, notebook && `from ${notebook}`];
    setText(this.facts, facts.filter(Boolean).join(" · "));
    if (whose) {
      const mark = make("span", "gm-own");
      setText(mark, `${whose} · `);
      this.facts.prepend(mark);
    }
    this.button.hidden = !step;
    setText(this.button, step === "kill" ? "Kill" : step === "wait" ? "Ending …" : "End");
    setAttribute(this.button, "aria-label", `${step === "kill" ? "Kill" : "End"} ${title}, PID ${pid}`);
    if (this.question && this.question.step !== step) this.closeQuestion();
  }

  // Asks once, in place. It is about the process as it was when it was asked.
  ask() {
    if (this.button.getAttribute("aria-disabled")) return;
    const { pid, started, title, step } = this.process;
    const kill = step === "kill";
    const id = `gm-end-${makeName()}`;
    this.question = make("span", "gm-question", { role: "alertdialog", "aria-labelledby": id });
    this.question.step = step;
    const text = this.question.appendChild(make("span", "", { id }));
    setText(text, kill ? `Kill ${title} (PID ${pid})? It is ended at once, without saving.` : `End ${title} (PID ${pid})? It gets TERM.`);
    const buttons = this.question.appendChild(make("span", "gm-answers"));
    const button = (label, act) => {
      const element = buttons.appendChild(makeFocusable("button", "gm-quiet", { type: "button" }));
      setText(element, label);
      element.addEventListener("click", act);
      return element;
    };
    button(kill ? "Kill" : "End", () => {
      this.closeQuestion();
      this.store.send(pageMessage.endProcess(pid, started, kill));
    }).classList.add("gm-danger");
    const cancel = button("Cancel", () => this.closeQuestion());
    this.question.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "ArrowLeft") return;
      this.closeQuestion();
      event.stopPropagation();
      event.preventDefault();
    });
    this.button.replaceWith(this.question);
    cancel.focus();
  }

  closeQuestion() {
    const hadFocus = this.question.contains(document.activeElement);
    this.question.replaceWith(this.button);
    this.question = null;
    if (hadFocus) this.button.focus();
  }
}
