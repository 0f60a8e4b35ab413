// Warns of kernels that the server will shut down, or ask to park, because they hold GPU memory idle: see
// server/culler.py. JupyterLab shows at most 140 characters of a notification.
import { gib, nameOf, printable } from "./machine.js";

const LONGEST_NAME = 32;
const MOST_NAMED = 2; // GPUs

const NOT_KEPT = "The kernel could not be kept. Run a cell to keep it.";

// A notebook's name without its folder.
function short(path) {
  const whole = printable(path).replace(/^.*\//, "");
  return whole.length > LONGEST_NAME ? `${whole.slice(0, LONGEST_NAME - 1)}…` : whole;
}

export class Culling {
  constructor(app, { PageConfig, ServerConnection, Notification, Poll }) {
    this.app = app;
    this.notify = Notification;
    this.request = ServerConnection.makeRequest;
    this.settings = app.serviceManager.serverSettings;
    this.shown = new Map(); // by kernel: the notification's id, and the kernel's name
    this.told = undefined; // the kernels that had ended at the first answer, or of whose end the user was told
    // Only a server that culls kernels gives the seconds between two questions.
    const interval = 1000 * Number(PageConfig?.getOption("gpuMagicCulling"));
    if (!interval || !Notification) return;
    const poll = new Poll({
      name: "gpu_magic:culling",
      factory: () => this.ask(),
      frequency: { interval },
      standby: "never", // a user who comes back finds the warning, or what has happened
    });
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && poll.refresh());
  }

  async ask() {
    const answer = await this.send("?no_track_activity=1", { cache: "no-store" });
    if (answer.ok) this.show(await answer.json());
  }

  send(query, how) {
    return this.request(`${this.settings.baseUrl}gpu_magic/culling${query}`, how, this.settings);
  }

  show({ kernels, ended, parks, after }) {
    this.told ??= new Set(Object.keys(ended));
    for (const [kernel, path] of Object.entries(ended)) {
      if (this.told.has(kernel)) continue;
      this.told.add(kernel);
      const { id, name } = this.shown.get(kernel) ?? { name: short(path) || "A kernel" };
      this.shown.delete(kernel);
      const message = `${name} was shut down, because it held GPU memory and was idle for ${after}.`;
      const changed = { message, type: "info", actions: [], autoClose: false };
      // This page may have slept through the warning, or the user has closed it.
      if (!id || !this.notify.update({ id, ...changed })) this.notify.info(message, { autoClose: false });
    }
    for (const [kernel, { id }] of this.shown) {
      if (kernel in kernels) continue;
      this.shown.delete(kernel);
      this.notify.dismiss(id); // it is in use again, was kept in another page, or has been asked to park
    }
    for (const [kernel, facts] of Object.entries(kernels)) {
      if (this.shown.has(kernel)) continue;
      const name = short(nameOf(this.app, kernel));
      const id = this.notify.warning(this.text(name, facts, parks), {
        autoClose: false,
        actions: [
          {
            label: `Keep for ${after}`,
            caption: "Start the time again",
            callback: () => this.keep(kernel),
          },
        ],
      });
      this.shown.set(kernel, { id, name });
    }
  }

  text(name, { memory, gpus, left }, parks) {
    const where = gpus.length > MOST_NAMED ? `${gpus.length} GPUs` : gpus.join(", ");
    const at = new Date(Date.now() + 1000 * left).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const what = parks ? "it is asked to park its variables" : "its kernel is shut down and its variables are lost";
    return `${name} is idle with ${gib(memory)} GiB on ${where}. At ${at} ${what}.`;
  }

  async keep(kernel) {
    const answer = await this.send("", { method: "POST", body: JSON.stringify({ kernel }) }).catch(() => undefined);
    if (answer?.ok) return;
    const why = answer?.status === 409 ? "It is too late to keep the kernel." : NOT_KEPT;
    this.notify.error(why, { autoClose: false });
  }
}
