// "Restart, and run the cells above again": writes a choice that came too late into the cell that made the choice
// before, restarts the kernel, and runs the cells up to the selected one by JupyterLab's own commands.
// Buttons of the class gm-rerun ask for it, below "Too late" (gpus/choice.py) and in panels (panel.js). Their
// data-request has the choice. machine.css shows them in notebooks.

// A cell that makes a choice, and does nothing else.
const IS_CHOICE = /^(%load_ext gpu_magic\s*\n)?%gpus (?!.*--(restart|dry-run|in-process|help)\b)\S.*$/;
const LOST = "The kernel has ended or was restarted before it could make the choice. Nothing was changed.";
// A saved notebook can hold any request. In braces, %gpus would run code.
const IS_REQUEST = /^[\w,:. -]+$/;

const sourceOf = (cell) => cell.model.sharedModel.getSource().trim();
const isCode = (cell) => cell.model.type === "code" && sourceOf(cell) !== "";
const outputsOf = (cell) => cell.model.sharedModel.getOutputs?.() ?? [];
// Whether its latest choice came too late.
const isTooLate = (cell) => JSON.stringify(outputsOf(cell)).includes("gm-rerun");

function hasFailed(cell) {
  const isAllowed = cell.model.sharedModel.getMetadata("tags")?.includes("raises-exception");
  return !isAllowed && outputsOf(cell).some((output) => output.output_type === "error");
}

function nameOf(cell) {
  const count = cell.model.executionCount;
  return count ? `cell [${count}]` : "the selected cell";
}

const capitalized = (text) => text[0].toUpperCase() + text.slice(1);

function make(tag, text = "", className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

export class Rerun {
  // `chip` has the notebook, and the panel of its kernel.
  constructor(app, chip, { Widget, Dialog, showDialog, Notification }) {
    this.app = app;
    this.chip = chip;
    this.notebook = chip.notebook;
    this.dialogs = { Widget, Dialog, showDialog, Notification };
    this.awaited = new Map(); // what is called with the kernel's answer, by the name of the request
    this.listen(this.notebook.node);
  }

  // Hears clicks on the buttons in a part of the page.
  listen(node) {
    node.addEventListener("click", ({ target }) => {
      const { content } = this.notebook;
      const button = target.closest(".gm-rerun");
      if (!button) return;
      const cell = content.widgets.find((one) => one.node.contains(button)) ?? content.activeCell;
      this.ask(button.dataset.request ?? "", cell);
    });
  }

  // Hears what a kernel answers to a choice.
  follow(model) {
    model.on("msg:custom", ({ type, page, text }) => {
      if (type === "restart") this.awaited.get(page)?.("");
      if (type === "refused") this.awaited.get(page)?.(`The kernel was not restarted. ${text}`);
    });
    model.on("comm_live_update", () => {
      for (const settle of this.awaited.values()) settle(LOST);
    });
  }

  async ask(request, selected) {
    if (!IS_REQUEST.test(request)) return this.tell("This choice cannot be written into a cell. Type it in a cell.");
    const kernel = this.chip.kernel;
    if (this.chip.panel?.model.kernel !== kernel) await this.chip.look(); // it may not have found gpu_magic yet
    const model = this.chip.panel?.model;
    if (!kernel || model?.kernel !== kernel)
      return this.tell("The kernel of this notebook has not loaded gpu_magic. Run the notebook's cells instead.");
    const plan = this.plan(request, selected);
    if (!(await this.confirm(plan))) return;
    const page = Math.random().toString(36).slice(2); // of this request alone
    const refusal = await new Promise((done) => {
      this.awaited.set(page, done);
      model.send({ type: "choose", request, restart: true, page });
    });
    this.awaited.delete(page);
    if (refusal) return this.tell(refusal);
    model.send({ type: "answer_restart", page, can: true });
    this.write(plan);
    try {
      await kernel.restart(); // the session's own `restartKernel` hides errors
    } catch (error) {
      return this.tell(`The kernel did not restart, so no cell ran (${error}). Restart it, and run the cells.`);
    }
    await this.run(selected);
  }

  // What will change and run.
  plan(request, selected) {
    const { content, context } = this.notebook;
    const cells = content.widgets.slice(0, content.widgets.indexOf(selected) + 1);
    const changed = cells.findLast((cell) => isCode(cell) && IS_CHOICE.test(sourceOf(cell)) && !isTooLate(cell));
    const line = `%gpus ${request}`;
    const old = changed && sourceOf(changed);
    const isLocked = changed?.model.sharedModel.getMetadata("editable") === false;
    const lock =
      context.contentsModel?.writable === false
        ? "The notebook is read-only"
        : isLocked
          ? `${capitalized(nameOf(changed))} is read-only`
          : "";
    const source = changed ? old.replace(/%gpus .*$/, line) : `%load_ext gpu_magic\n${line}`;
    const count = cells.filter(isCode).length + (changed || lock ? 0 : 1);
    return { line, changed, old, source, lock, count, selected };
  }

  // Returns whether the user agrees.
  async confirm({ line, changed, old, source, lock, count, selected }) {
    const { Widget, Dialog, showDialog } = this.dialogs;
    const node = make("div", "", "gm-rerun-question");
    if (lock) {
      node.append(make("p", `${lock}, so it stays as it is. This run has ${line} in place of its own choice.`));
    } else {
      node.append(make("p", changed ? `${capitalized(nameOf(changed))} changes:` : "A new first cell:"));
      const lines = node.appendChild(make("pre"));
      if (changed) lines.append(make("del", old.split("\n").at(-1)), make("ins", line));
      else lines.append(...source.split("\n").map((one) => make("ins", one)));
    }
    const cells = count === 1 ? "1 cell runs" : `${count} cells run`;
    node.append(
      make("p", `Then the kernel restarts and ${cells}, up to ${nameOf(selected)}. A cell that fails stops the run.`),
      make("p", "All variables are lost."),
    );
    if (this.chip.kernel.status === "busy")
      node.append(make("p", "A cell runs now. The kernel restarts when it is free."));
    if (this.notebook.context.model.dirty)
      node.append(make("p", "The notebook has unsaved changes. They stay as they are."));
    const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: "Restart and run" })];
    const title = "Restart, and run the cells above again?";
    return (await showDialog({ title, body: new Widget({ node }), buttons, defaultButton: 0 })).button.accept;
  }

  write({ changed, old, source, lock }) {
    if (lock || changed?.isDisposed) return;
    if (changed && sourceOf(changed) !== old)
      return this.tell(`${capitalized(nameOf(changed))} was edited meanwhile, so it stays as it is.`);
    if (changed) return changed.model.sharedModel.setSource(source);
    const metadata = { trusted: true, gpu_magic: { is_choice: true } };
    this.notebook.content.model.sharedModel.insertCell(0, { cell_type: "code", source, metadata });
  }

  async run(selected) {
    const { content, id } = this.notebook;
    const index = content.widgets.indexOf(selected);
    if (index < 0) return this.tell("The kernel was restarted. The selected cell was deleted, so no cell ran.");
    this.app.shell.activateById(id); // the commands run cells of the current notebook
    content.activeCellIndex = index;
    content.deselectAll(); // a selection would also run
    try {
      const { commands } = this.app;
      const isAbove = index === 0 || (await commands.execute("notebook:run-all-above"));
      if (isAbove && (await commands.execute("notebook:run-cell"))) return;
    } catch (error) {
      return this.tell(`The kernel was restarted, but it ended while the cells ran (${error}).`);
    }
    const failed = content.widgets.slice(0, index + 1).find(hasFailed);
    if (!failed) return this.tell("The kernel was restarted, but not all cells ran.");
    content.activeCellIndex = content.widgets.indexOf(failed);
    this.tell(`The kernel was restarted. ${capitalized(nameOf(failed))} failed, so the cells below it did not run.`);
  }

  tell(text) {
    this.dialogs.Notification.warning(text, { autoClose: false });
  }
}
