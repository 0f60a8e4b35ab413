// The panel's scripts as a module, with what tests ask for, and stand-ins for what a page brings.
import { readFileSync } from "node:fs";

const FOLDER = new URL("../../gpu_magic/", import.meta.url);

// Some of the options that Python puts in front of the scripts (panel/__init__.py).
const OPTIONS = [
  { name: "--only-free", is_flag: true, is_size: false, is_filter: true, needs_auto: false },
  { name: "--min-free", is_flag: false, is_size: true, is_filter: true, needs_auto: true },
  { name: "--growth", is_flag: true, is_size: false, is_filter: false, needs_auto: false },
  { name: "--memory-limit", is_flag: false, is_size: true, is_filter: false, needs_auto: false },
];

/**
 * Imports functions and classes of scripts, which see each other as in a page.
 *
 * @param {string[]} files
 * @param {string[]} names
 */
export function load(files, names) {
  const options = `const OPTIONS = ${JSON.stringify(OPTIONS)};`;
  const source = files.map((name) => readFileSync(new URL(name, FOLDER), "utf8")).join("\n");
  const script = `${options}\n${source}\nexport { ${names.join(", ")} };`;
  return import(`data:text/javascript,${encodeURIComponent(script)}`);
}

// A signal of JupyterLab's.
export class Signal {
  hearers = new Set();

  connect(hear) {
    this.hearers.add(hear);
  }

  disconnect(hear) {
    this.hearers.delete(hear);
  }

  emit(...what) {
    for (const hear of [...this.hearers]) hear(this, ...what);
  }
}

// A kernel of JupyterLab's.
export function makeKernel() {
  const comms = [];
  return {
    comms,
    handleComms: true,
    disposed: new Signal(),
    statusChanged: new Signal(),
    iopubMessage: new Signal(),
    createComm(target, commId) {
      const comm = { target, commId, sent: [], isDisposed: false };
      comm.send = (message) => comm.sent.push(message);
      comms.push(comm);
      return comm;
    },
  };
}

// A model of anywidget's, which notes what is sent.
export function makeModel(state, values = {}) {
  const hearers = new Map();
  return {
    sent: [],
    get: (name) => ({ full_state: state, ...values })[name],
    on: (event, hear) => hearers.set(event, hear),
    send(message) {
      this.sent.push(message);
    },
    hear: (message) => hearers.get("msg:custom")(message),
    lose: () => hearers.get("comm_live_update")(),
  };
}

export const row = (key, more = {}) => ({
  ...{ key, parent: "", label: key, visible_as: `cuda:${key}`, usage: "free", users: [], unavailable: "" },
  ...{ is_held: false, utilization: 0 },
  ...more,
});

// A state as the kernel sends it: panel/state.py.
export const state = (more = {}) => ({
  process: "p",
  second: 7,
  pause: 0,
  details: {},
  history: { 0: [1], 1: [2] },
  is_busy: false,
  is_paused: false,
  is_restarting: false,
  waiting: "",
  said: { number: 0, text: "", kind: "info", warnings: [] },
  header: { hides_devices: false, memory_options: "", launch_devices: "", least_busy: "1,0", cuda_state: "live" },
  rows: [row("0"), row("1"), row("2")],
  ...more,
});
