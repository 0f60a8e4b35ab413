// Where a panel is shown. After a restart of its kernel, and %load_ext there, the new kernel's panel takes the place.
class Place {
  constructor(model) {
    this.model = model;
    this.store = new Store(model);
    this.views = new Map(); // what closes each, by element
    this.successor = undefined; // the new kernel's panel
    this.isClosed = false;
    // JupyterLab and Notebook 7 tell a widget of its notebook's session; in other front ends a lost panel stays lost.
    this.session = findSession(model);
    this.store.whenLost = () => this.look(); // gpu_magic can be loaded again already
    this.stop = this.session && afterCells(this.session, () => this.look());
  }

  render(element) {
    const show = () => (this.successor ? this.successor.render({ el: element }) : showView(new PanelView(this.store, element)));
    this.views.set(element, show());
    return () => {
      this.views.get(element)?.();
      this.views.delete(element);
    };
  }

  // Looks for a kernel that can go on with the panel, where its own does not. It does not wait for an earlier look: a
  // kernel that is being started can leave messages without an answer.
  async look() {
    if (!this.session || !(this.store.isGone || this.store.isSilent)) return;
    const kernel = this.session.session?.kernel;
    const comm = await findComm(kernel);
    if (comm && !this.isClosed && !this.successor) await this.goOn(kernel, comm);
  }

  async goOn(kernel, comm) {
    const successor = await openPanel(kernel, comm, { key: this.model.get("key") }, this.model.widget_manager);
    if (!successor) return;
    // A kernel that is about to be restarted is still there: it is not the next one.
    const isSame = successor.model.get("full_state").process === this.store.process;
    if (this.isClosed || this.successor || (isSame && !this.model.isClosed)) return successor.close();
    this.leave();
    this.successor = successor;
    for (const [element, close] of this.views) {
      close();
      this.views.set(element, successor.render({ el: element }));
    }
  }

  leave() {
    this.stop?.();
    this.store.close();
  }

  close() {
    this.isClosed = true;
    this.leave();
    this.successor?.close();
  }
}

const showView = (view) => () => view.close();

// The session of the notebook that a widget is shown in; undefined where the page does not tell.
function findSession(model) {
  const session = model.widget_manager?.context?.sessionContext;
  return session?.iopubMessage ? session : undefined;
}
