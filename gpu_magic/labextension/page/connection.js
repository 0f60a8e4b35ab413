// Finds gpu_magic in a kernel without a widget, and opens its panel, for the chip or after a restart.
// This file is part of the panel's script, which the kernel sends, and of the prebuilt extension. The
// extension sends only "attach" and runs the script of the answer, so the panel always fits the kernel.
const COMM = "gpu_magic"; // shell/page_comm.py
// A page can open a comm only once. Scripts of all versions share it here, by the connection to the kernel.
const comms = (globalThis[Symbol.for("gpu_magic.comms")] ??= new WeakMap());
const attach = (page) => ({ type: "attach", page }); // panel/messages.py
const modules = (globalThis[Symbol.for("gpu_magic.modules")] ??= new Map()); // by script

// The notebook's cell with a choice that was clicked before, so that the next choice replaces it. A cell that
// the user has changed since then stays as it is.
export function findChoice(notebook) {
  const cell = notebook.cells.find((one) => one.getMetadata("gpu_magic")?.is_choice);
  if (!cell || /^(%load_ext gpu_magic\n)?%gpus [\w,:. -]+$/.test(cell.getSource())) return cell;
  cell.deleteMetadata("gpu_magic");
  return undefined;
}

// Calls a function with the source of each cell that a notebook has run. Returns a function that stops this.
export function afterCells(session, act) {
  let source = "";
  const hear = (_session, { header, content, parent_header }) => {
    if (header.msg_type === "execute_input") source = content.code;
    const isIdle = header.msg_type === "status" && content.execution_state === "idle";
    if (isIdle && parent_header.msg_type === "execute_request") act(source);
  };
  session.iopubMessage.connect(hear);
  return () => session.iopubMessage.disconnect(hear);
}

// Calls a function when messages come from a new process, because a page is not told of a restart that
// another page requested. Returns a function that stops this.
export function whenReplaced(kernel, act) {
  let process;
  const hear = (_kernel, { header }) => {
    process ??= header.session;
    if (header.session !== process) act();
    process = header.session;
  };
  kernel?.iopubMessage?.connect?.(hear);
  return () => kernel?.iopubMessage?.disconnect?.(hear);
}

// The id of the comm, or undefined. A Jupyter server does not count this request as activity of the kernel.
export async function findComm(kernel) {
  if (!kernel?.handleComms) return undefined;
  try {
    const { content } = await kernel.requestCommInfo({ target_name: COMM });
    return Object.keys(content.comms ?? {})[0];
  } catch {
    return undefined; // the kernel has ended meanwhile
  }
}

// A model like anywidget's, over the comm. `get` reads from `values`.
export class Connection {
  /** @param {Record<string, unknown>} values */
  constructor(kernel, comm, values = {}) {
    this.values = values;
    this.widget_manager = undefined; // of the widget that a panel continues
    this.isFollowed = false; // somebody else looks for the next kernel
    this.page = Math.random().toString(36).slice(2);
    this.callbacks = new Map(); // by event
    this.isClosed = false; // by the kernel, because gpu_magic was unloaded
    this.kernel = kernel;
    this.id = comm;
    this.shared = Connection.share(kernel, comm);
    this.hear = (message) => this.receive(message);
    this.shared.hearers.add(this.hear);
    this.lose = () => this.emit("comm_live_update");
    this.check = (_kernel, status) => /restarting|dead/.test(status) && this.lose();
    kernel.disposed.connect(this.lose);
    kernel.statusChanged.connect(this.check);
    this.stop = whenReplaced(kernel, this.lose);
  }

  static share(kernel, id) {
    const known = comms.get(kernel);
    if (known && known.comm.commId === id && !known.comm.isDisposed) return known;
    // JupyterLab keeps a subshell for each target. It keeps it even after a restart that it was not told of, and would
    // send to the old process. No message has this comm's target, so the comm has one that differs in each process.
    const shared = { comm: kernel.createComm(id, id), hearers: new Set() };
    shared.comm.onMsg = ({ content }) => {
      for (const hear of [...shared.hearers]) hear(content.data);
    };
    comms.set(kernel, shared);
    return shared;
  }

  // Requests the panel's script, style and state. Returns the answer, or undefined if the kernel is lost.
  attach() {
    return new Promise((done) => {
      this.done = done;
      this.on("comm_live_update", () => done(undefined));
      this.send(attach(this.page));
    });
  }

  receive(message) {
    if (message.type === "attached") {
      if (message.page === this.page) this.done(message);
      return;
    }
    if (message.type === "closed") {
      this.isClosed = true;
      return this.lose();
    }
    this.emit("msg:custom", message);
  }

  get(name) {
    return this.values[name];
  }

  on(event, act) {
    this.callbacks.set(event, [...(this.callbacks.get(event) ?? []), act]);
  }

  emit(event, ...what) {
    for (const act of this.callbacks.get(event) ?? []) act(...what);
  }

  send(message) {
    this.shared.comm.send(message);
  }

  close() {
    this.callbacks.clear();
    this.shared.hearers.delete(this.hear);
    this.stop();
    this.kernel.disposed.disconnect(this.lose);
    this.kernel.statusChanged.disconnect(this.check);
  }
}

// Returns the panel of a kernel, which can be rendered in several places: a widget like anywidget's, with
// `model` and `close`. Returns undefined if the kernel has ended meanwhile.
/** @param {Record<string, unknown>} values */
export async function openPanel(kernel, comm, values = {}, widgetManager = undefined) {
  const model = new Connection(kernel, comm, values);
  const answer = await model.attach();
  if (!answer) {
    model.close();
    return undefined;
  }
  values.full_state = answer.state;
  model.widget_manager = widgetManager;
  model.isFollowed = !widgetManager; // the extension looks for the next kernel; else place.js does
  let makeWidget;
  try {
    makeWidget = await load(answer);
  } catch (error) {
    model.close();
    throw error; // the page's console shows it
  }
  const widget = makeWidget();
  const end = widget.initialize({ model });
  model.emit("msg:custom", { type: "state", state: answer.state }); // a kernel sent it, so the panel is live
  const close = () => {
    end();
    model.close();
  };
  return { ...widget, model, close };
}

async function load({ script, style }) {
  if (!modules.has(script)) {
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const loading = import(url);
    loading.catch(() => modules.delete(script)); // the next look tries again
    modules.set(script, loading);
  }
  const module = await modules.get(script);
  const element =
    document.getElementById("gpu-magic-style") ?? document.head.appendChild(document.createElement("style"));
  element.id = "gpu-magic-style";
  if (element.textContent !== style) element.textContent = style;
  return module.default;
}
