// culling.js: a page tells of kernels that the server has shut down, whether or not it has warned of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Culling } from "../../gpu_magic/labextension/page/culling.js";

/** @type {any} */
const page = globalThis;
page.document = { addEventListener() {}, visibilityState: "visible" };

const QUIET = { parks: false, after: "4 h", kernels: {}, ended: {} };
const WARNS = { ...QUIET, kernels: { k: { memory: 2 ** 35, gpus: ["GPU 2"], idle: 1, left: 900 } } };
const SHUT_DOWN = "train.ipynb was shut down, because it held GPU memory and was idle for 4 h.";

// A page of a server with these answers, one after the other.
async function makePage(...answers) {
  const shown = new Map(); // notifications
  let status = 200;
  let count = 0;
  const add = (text) => {
    shown.set(String(++count), text);
    return String(count);
  };
  const Notification = {
    warning: add,
    info: add,
    error: add,
    update: ({ id, message }) => shown.has(id) && Boolean(shown.set(id, message)),
    dismiss: (id) => shown.delete(id),
  };
  const running = () => [{ kernel: { id: "k" }, path: "work/train.ipynb" }];
  const serviceManager = { serverSettings: { baseUrl: "/" }, sessions: { running }, kernels: { running: () => [] } };
  const makeRequest = async (_url, { method }) => {
    if (!status) throw new TypeError("NetworkError");
    const json = async () => (answers.length > 1 ? answers.shift() : answers[0]);
    return method ? { ok: status === 200, status } : { ok: true, json };
  };
  const getOption = () => "60";
  let asked;
  class Poll {
    constructor({ factory }) {
      asked = factory();
    }
  }
  const culling = new Culling(
    { serviceManager },
    { PageConfig: { getOption }, ServerConnection: { makeRequest }, Notification, Poll },
  );
  await asked;
  const keep = async (answer) => {
    status = answer;
    await culling.keep("k");
  };
  return { shown, culling, keep, texts: () => [...shown.values()] };
}

test("a shutdown is told once, also if the warning was slept through, was closed, or is there", async () => {
  for (const prepare of [undefined, (shown) => shown.clear(), () => {}]) {
    const ended = { ...QUIET, ended: { k: "work/train.ipynb" } };
    const { shown, culling, texts } = await makePage(prepare ? WARNS : QUIET, ended);
    prepare?.(shown);
    await culling.ask();
    await culling.ask();
    assert.deepEqual(texts(), [SHUT_DOWN]);
  }
});

test("what has ended before the page was opened is not told", async () => {
  const { culling, texts } = await makePage({ ...QUIET, ended: { k: "work/train.ipynb" } });
  await culling.ask();
  assert.deepEqual(texts(), []);
});

test("whether a kernel could be kept is told if it could not", async () => {
  const { culling, keep, texts } = await makePage(QUIET);
  for (const status of [200, 409, 404, 0]) await keep(status);
  const failed = "The kernel could not be kept. Run a cell to keep it.";
  assert.deepEqual(texts(), ["It is too late to keep the kernel.", failed, failed]);
});
