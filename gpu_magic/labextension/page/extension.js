// Shows the chip of gpu_magic for the current notebook, and its panel beside the notebook. The kernel sends
// their content. This file follows the notebook's kernels and provides the places. For a kernel that has not
// loaded gpu_magic, it shows the server's data (machine.js).
import { afterCells, findChoice, findComm, openPanel } from "./connection.js";
import { Culling } from "./culling.js";
import { listRunning, Machine, MachineChip, MachineTable } from "./machine.js";
import { Rerun } from "./rerun.js";

const ID = "gpu-magic:chip"; // also that of its settings

// Only after such cells is the kernel asked for gpu_magic.
const MENTIONS =
  /gpu_magic|%(gpus|on_gpu|where|to_gpu|to_cpu|gpu_free|gpu_park|gpu_unpark|gpu_fit|gpu_ps|gpu_panel|gpu_doctor|gpu_launch|gpu_tasks|gpu_cluster|gpu_time)\b/;

// `modules` has what is used of the application's own modules, by name: see remoteEntry.js.
export function makePlugin(modules) {
  const { Widget, IStatusBar, IRunningSessionManagers, ISettingRegistry } = modules;
  const tokens = [IStatusBar, IRunningSessionManagers, ISettingRegistry]; // undefined if the application lacks one
  // Closing the widget disposes of it.
  class Beside extends Widget {
    onCloseRequest() {
      this.dispose();
    }
  }
  return {
    id: ID,
    description: "Shows the GPUs of a notebook in the status bar, and their panel beside it.",
    autoStart: true,
    optional: tokens.filter(Boolean),
    activate(app, ...found) {
      const [statusBar, managers, registry] = tokens.map((token) => token && found.shift());
      const machine = new Machine(app, modules);
      new Culling(app, modules);
      if (managers) listRunning(machine, managers, modules);
      followSettings(registry, (settings) => machine.set(settings));
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew(notebook) {
          const chip = new Chip(app, notebook, new Widget(), Beside, { machine, ...modules });
          chip.place = putInSight(app, statusBar, chip);
          return chip;
        },
      });
    },
  };
}

// Calls a function with the settings of the user, and after each change, also after one in another page: Notebook 7
// has its settings editor in the page with the files.
async function followSettings(registry, act) {
  const settings = await registry?.load(ID).catch(() => undefined); // a server can lack the schema
  if (!settings) return act({});
  const pages = new BroadcastChannel(ID);
  let isTold = false;
  pages.onmessage = async () => {
    isTold = true;
    await registry.reload(ID).finally(() => {
      isTold = false;
    });
  };
  settings.changed.connect(() => {
    act(settings.composite);
    if (!isTold) pages.postMessage(null);
  });
  act(settings.composite);
}

// Puts the chip where it stays in sight, because toolbars hide items without room. Returns its disposable.
function putInSight({ shell }, statusBar, chip) {
  const { item } = chip;
  item.id = `gpu-magic-chip-${chip.notebook.id}`;
  if (!shell.mode) {
    shell.add(item, "menu", { rank: 10900 }); // Notebook 7, before "Trusted": a page has one notebook
    return item;
  }
  return statusBar?.registerStatusItem(item.id, {
    item,
    align: "left",
    rank: 10,
    isActive: () => [chip.notebook, chip.beside].includes(shell.currentWidget),
    activeStateChanged: shell.currentChanged,
  });
}

// The chip and the panel of one notebook.
class Chip {
  constructor(app, notebook, item, Beside, { machine, ...modules }) {
    const { showDialog, Dialog } = modules;
    this.app = app;
    this.machine = machine;
    this.confirm = async (title, body) => {
      const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: "Shut down" })];
      return (await showDialog({ title, body, buttons })).button.accept;
    };
    this.notebook = notebook;
    this.Beside = Beside;
    this.session = notebook.sessionContext;
    this.rerun = new Rerun(app, this, /** @type {any} */ (modules));
    this.isDisposed = false;
    /** @type {{ dispose(): void } | undefined} */
    this.place = undefined; // in the status bar or the toolbar
    this.panel = undefined; // of the kernel, as `openPanel` returns it
    this.beside = undefined; // the widget with the panel, while it is open
    this.item = item;
    this.item.node.hidden = true;
    this.stop = afterCells(this.session, (source) => MENTIONS.test(source) && this.look());
    this.follow = () => this.look();
    this.hear = (_session, status) => this.heard(status);
    this.session.kernelChanged.connect(this.follow);
    this.session.statusChanged.connect(this.hear);
    this.session.ready.then(this.follow);
    this.turn = () => this.startAnew();
    machine.turned.connect(this.turn);
  }

  // IPython's configuration can load gpu_magic when a kernel starts or restarts.
  heard(status) {
    if (status === "idle" && this.isNew) this.look();
    if (status !== "busy") this.isNew = /starting|restarting|unknown/.test(status);
  }

  // The start of a kernel sends several signals. A look does not wait for an earlier one, because a starting
  // kernel can leave messages without an answer.
  async look() {
    const kernel = this.kernel;
    const comm = await findComm(kernel);
    if (this.isDisposed || kernel !== this.kernel || this.isAt(kernel, comm)) return;
    if (!comm) {
      this.panel?.model.lose(); // shows the loss, and hides the chip
      return this.showMachine();
    }
    const panel = await openPanel(kernel, comm, { notebook: this.notebook });
    if (!panel) return;
    if (this.isDisposed || this.isAt(kernel, comm)) return panel.close();
    this.leave();
    this.hideMachine();
    this.panel = panel;
    this.rerun.follow(panel.model);
    if (this.machine.isOn) this.endChip = panel.chip({ el: this.item.node, open: () => this.open() });
    if (this.beside) this.fill();
  }

  // After the settings have turned the chip on or off. The kernel's panel is opened anyway, because rerun.js needs it.
  startAnew() {
    this.beside?.dispose();
    this.leave();
    this.hideMachine();
    this.item.node.hidden = true;
    this.look();
  }

  // Shows the server's data while the kernel has not loaded gpu_magic and no panel of it is open.
  showMachine() {
    if (!this.machine.isOn || this.machineChip || (this.panel && this.beside)) return;
    this.leave();
    this.machineChip = new MachineChip(
      this.machine,
      this.item.node,
      () => this.kernel,
      () => this.open(),
    );
  }

  hideMachine() {
    this.machineChip?.close();
    this.machineChip = undefined;
  }

  get kernel() {
    return this.session.session?.kernel;
  }

  // Runs the choice in the cell of an earlier choice, else in a new first cell, so that it also takes effect
  // when the notebook is run again.
  async use(gpus) {
    const { content } = this.notebook;
    const notebook = content.model.sharedModel;
    const source = `%load_ext gpu_magic\n%gpus ${gpus}`;
    const written = findChoice(notebook);
    if (written) written.setSource(source);
    else
      notebook.insertCell(0, {
        cell_type: "code",
        source,
        metadata: { trusted: true, gpu_magic: { is_choice: true } },
      });
    content.activeCellIndex = written ? notebook.cells.indexOf(written) : 0;
    content.deselectAll(); // a selection would also run
    this.app.shell.activateById(this.notebook.id);
    await this.app.commands.execute("notebook:run-cell");
  }

  isAt(kernel, comm) {
    const model = this.panel?.model;
    return Boolean(model) && model.kernel === kernel && model.id === comm && !model.isClosed;
  }

  leave() {
    this.endChip?.();
    this.endPanel?.();
    this.panel?.close();
    this.endChip = this.endPanel = this.panel = undefined;
  }

  // Opens the panel beside the notebook. In Notebook 7, only the notebook can be in the main area.
  open() {
    const { shell } = this.app;
    if (!this.beside) {
      const beside = new this.Beside();
      beside.id = `gpu-magic-${this.notebook.id}`;
      beside.title.label = "GPUs";
      beside.title.caption = `GPUs of ${this.notebook.title.label}`;
      beside.title.closable = true;
      beside.addClass("gm-beside");
      beside.disposed.connect(() => this.forget());
      this.rerun.listen(beside.node);
      this.beside = beside;
      this.fill();
      if (shell.mode) shell.add(beside, "main", { mode: "split-right", ref: this.notebook.id });
      else shell.add(beside, "right");
    }
    if (!shell.mode) shell.expandRight?.(this.beside.id);
    shell.activateById(this.beside.id);
  }

  fill() {
    this.endPanel?.();
    if (this.panel) {
      this.endPanel = this.panel.render({ el: this.beside.node });
      return;
    }
    const isPython = this.notebook.content.codeMimetype?.includes("python");
    const use = isPython ? (gpus) => this.use(gpus) : undefined;
    const how = { use, kernel: () => this.kernel, confirm: this.confirm };
    const table = new MachineTable(this.machine, this.beside.node, how);
    this.endPanel = () => table.close();
  }

  forget() {
    this.endPanel?.();
    this.endPanel = this.beside = undefined;
    if (!this.isDisposed) this.look(); // the place of an ended kernel's panel is free
  }

  dispose() {
    if (this.isDisposed) return;
    this.isDisposed = true;
    this.stop();
    this.session.kernelChanged.disconnect(this.follow);
    this.session.statusChanged.disconnect(this.hear);
    this.machine.turned.disconnect(this.turn);
    this.beside?.dispose();
    this.leave();
    this.hideMachine();
    this.place?.dispose();
    this.item.dispose();
  }
}
