// connection.js: a page finds gpu_magic in a kernel, and has its panel over a comm that it shares.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  afterCells,
  Connection,
  findChoice,
  findComm,
  openPanel,
} from "../../gpu_magic/labextension/page/connection.js";
import { makeKernel, Signal, state } from "./scripts.mjs";

/** @type {any} */
const page = globalThis;

test("the comm of gpu_magic is found, and none in a kernel that has ended or has no comms", async () => {
  const kernel = { ...makeKernel(), requestCommInfo: async () => ({ content: { comms: { c1: {} } } }) };
  assert.equal(await findComm(kernel), "c1");
  assert.equal(await findComm({ ...kernel, handleComms: false }), undefined);
  assert.equal(await findComm(undefined), undefined);
  kernel.requestCommInfo = async () => {
    throw new Error("ended");
  };
  assert.equal(await findComm(kernel), undefined);
});

test("a kernel's comm is opened once for all panels of a page, and again for the next comm", () => {
  const kernel = makeKernel();
  const [one, other] = [new Connection(kernel, "c1"), new Connection(kernel, "c1")];
  assert.equal(kernel.comms.length, 1);
  const heard = [];
  one.on("msg:custom", (message) => heard.push(["one", message.type]));
  other.on("msg:custom", (message) => heard.push(["other", message.type]));
  kernel.comms[0].onMsg({ content: { data: { type: "state" } } });
  one.close();
  kernel.comms[0].onMsg({ content: { data: { type: "same" } } });
  assert.deepEqual(heard, [
    ["one", "state"],
    ["other", "state"],
    ["other", "same"],
  ]);
  new Connection(kernel, "c2");
  const [{ target }, next] = kernel.comms;
  assert.equal(next.commId, "c2");
  assert.notEqual(next.target, target); // JupyterLab 4.4 would send to the old process, even after `dispose`
});

test("a connection is lost with its kernel, and hears nothing after it is closed", () => {
  for (const lose of [
    (kernel) => kernel.disposed.emit(),
    (kernel) => kernel.statusChanged.emit("restarting"),
    (kernel) => kernel.statusChanged.emit("dead"),
    (kernel) => kernel.comms[0].onMsg({ content: { data: { type: "closed" } } }),
  ]) {
    const kernel = makeKernel();
    const connection = new Connection(kernel, "c1");
    let lost = 0;
    connection.on("comm_live_update", () => lost++);
    kernel.statusChanged.emit("busy");
    assert.equal(lost, 0);
    lose(kernel);
    assert.equal(lost, 1);
    connection.close();
    lose(kernel);
    assert.equal(lost, 1);
    for (const signal of [kernel.disposed, kernel.statusChanged, kernel.iopubMessage])
      assert.equal(signal.hearers.size, 0);
  }
});

test("only the answer to this page's request opens its panel", async () => {
  const kernel = makeKernel();
  const connection = new Connection(kernel, "c1");
  const attached = connection.attach();
  const [comm] = kernel.comms;
  assert.deepEqual(comm.sent, [{ type: "attach", page: connection.page }]);
  comm.onMsg({ content: { data: { type: "attached", page: "another" } } });
  comm.onMsg({ content: { data: { type: "attached", page: connection.page, script: "s" } } });
  assert.equal((await attached).script, "s");
});

test("a kernel that ends meanwhile gives no panel, and leaves nothing", async () => {
  const kernel = makeKernel();
  const opened = openPanel(kernel, "c1");
  kernel.disposed.emit();
  assert.equal(await opened, undefined);
  assert.equal(kernel.disposed.hearers.size, 0);
});

test("the kernel's script is run once, and again if it could not be loaded", async () => {
  const urls = [];
  page.document = { getElementById: () => ({ id: "", textContent: "" }) };
  URL.createObjectURL = (blob) => {
    urls.push(blob);
    return urls.length === 1 ? "data:text/javascript,no script" : `data:text/javascript,${encodeURIComponent(SCRIPT)}`;
  };
  const SCRIPT =
    "export default () => ({ initialize: ({ model }) => { model.ready = true; return () => { model.ready = false; }; } });";
  const kernel = makeKernel();
  const open = () => {
    const opened = openPanel(kernel, "c1");
    const { page: name } = kernel.comms[0].sent.at(-1);
    kernel.comms[0].onMsg({
      content: { data: { type: "attached", page: name, script: "s", style: "", state: state() } },
    });
    return opened;
  };
  await assert.rejects(open(), SyntaxError);
  await new Promise((resolve) => setImmediate(resolve));
  const [first, second] = [await open(), await open()];
  assert.equal(urls.length, 2);
  assert.deepEqual([first.model.ready, first.model.get("full_state").second], [true, 7]);
  first.close();
  assert.deepEqual([first.model.ready, second.model.ready], [false, true]);
  second.close();
  assert.equal(kernel.disposed.hearers.size, 0);
});

test("the source of each cell that has run is told until it is stopped", () => {
  const session = { iopubMessage: new Signal() };
  const told = [];
  const stop = afterCells(session, (source) => told.push(source));
  const emit = (msg_type, content, parent = "execute_request") =>
    session.iopubMessage.emit({ header: { msg_type }, content, parent_header: { msg_type: parent } });
  emit("execute_input", { code: "%gpus" });
  emit("status", { execution_state: "busy" });
  emit("status", { execution_state: "idle" }, "comm_msg");
  assert.deepEqual(told, []);
  emit("status", { execution_state: "idle" });
  stop();
  emit("status", { execution_state: "idle" });
  assert.deepEqual(told, ["%gpus"]);
});

test("a cell with a choice is replaced, unless the user has changed it", () => {
  const cell = (source, is_choice) => ({
    metadata: is_choice ? { is_choice } : undefined,
    getMetadata() {
      return this.metadata;
    },
    getSource: () => source,
    deleteMetadata() {
      this.metadata = undefined;
    },
  });
  const chosen = cell("%load_ext gpu_magic\n%gpus 1,3", true);
  assert.equal(findChoice({ cells: [cell("%gpus 2", false), chosen] }), chosen);
  const changed = cell("%gpus 1\nimport torch", true);
  assert.equal(findChoice({ cells: [changed] }), undefined);
  assert.equal(changed.metadata, undefined);
});
