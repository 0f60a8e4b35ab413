// store.js: what a panel sends for clicks, and what it shows of the kernel's answers.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { load, makeKernel, makeModel, row, state } from "./scripts.mjs";

const { Store, joinRequest, restartThroughServer, splitRequest } = await load(
  ["panel/dom.js", "labextension/page/connection.js", "panel/store.js"],
  ["Store", "joinRequest", "restartThroughServer", "splitRequest"],
);

/** @type {any} */
const page = globalThis;
let store;
let model;

beforeEach(() => {
  model = makeModel(state());
  store = new Store(model);
  store.receive({ type: "state", state: state() });
});

const sent = () => model.sent.at(-1);

// The restart through the server of the page.

function openPage({ config = {}, href = "https://here.org/lab/tree/a.ipynb", ok = true }) {
  const requests = [];
  page.document = {
    getElementById: () => ({ textContent: JSON.stringify(config) }),
    body: { dataset: {} },
    cookie: "a=1; _xsrf=x%2Fy",
  };
  page.location = new URL(href);
  page.fetch = async (url, options) => {
    requests.push([String(url), options]);
    return { ok };
  };
  return requests;
}

// Waits for the end of a restart, which pauses for a second.
async function ended(begin) {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const done = begin();
    await new Promise((resolve) => setImmediate(resolve));
    mock.timers.tick(1000);
    return await done;
  } finally {
    mock.timers.reset();
  }
}

const restart = (kernel) => ended(() => restartThroughServer(kernel));

test("a restart asks the page's own server, with its token and against forgery", async () => {
  const requests = openPage({ config: { baseUrl: "/user/maria/", token: "secret" } });
  assert.equal(await restart("a/b"), true);
  const [[url, { method, headers, credentials }]] = requests;
  assert.equal(url, "https://here.org/user/maria/api/kernels/a%2Fb/restart");
  assert.deepEqual(
    { method, headers, credentials },
    { method: "POST", headers: { "X-XSRFToken": "x/y", Authorization: "token secret" }, credentials: "same-origin" },
  );
});

for (const baseUrl of ["https://elsewhere.org/", "//elsewhere.org/", "http://here.org/", "https://here.org:444/"]) {
  test(`no request is sent to a baseUrl of another origin: ${baseUrl}`, async () => {
    const requests = openPage({ config: { baseUrl, token: "secret" } });
    assert.equal(await restart("k"), false);
    assert.deepEqual(requests, []);
  });
}

test("no request is sent without a kernel or without a server", async () => {
  const requests = openPage({ config: { baseUrl: "/" } });
  assert.equal(await restart(""), false);
  page.document.getElementById = () => null;
  assert.equal(await restart("k"), false);
  assert.deepEqual(requests, []);
});

test("a refused or failed restart is told to the kernel, a restart ends the panel's kernel", async () => {
  for (const [ok, answers] of [
    [false, [true, false]],
    [true, [true]],
  ]) {
    openPage({ config: { baseUrl: "/" }, ok });
    model.sent.length = 0;
    await ended(() => store.restart({ kernel: "k", page: store.page }));
    assert.deepEqual(
      model.sent.map(({ can }) => can),
      answers,
    );
    assert.equal(store.isGone, ok);
  }
});

test("a restart that names another page is not this page's", async () => {
  const requests = openPage({ config: { baseUrl: "/" } });
  await store.restart({ kernel: "k", page: "another" });
  assert.deepEqual(model.sent, []);
  await store.restart({ kernel: "k", page: "" }); // who can?
  assert.deepEqual([sent(), requests], [{ type: "answer_restart", page: store.page, can: true }, []]);
});

// The clicked choice.

test("a request is split into devices and options, and joined again", () => {
  for (const request of ["", "2,6", "2,6 --growth", "0 --memory-limit 8GB", "MIG-4 --growth --memory-limit 8 GiB"])
    assert.equal(joinRequest(splitRequest(request)), request);
  assert.deepEqual(splitRequest("2 --growth"), { devices: "2", options: { "--growth": true } });
});

test("clicks mark devices in their order, and unmark them", () => {
  store.toggle("2");
  store.toggle("0");
  assert.equal(store.draft, "2,0");
  store.toggle("2");
  assert.equal(store.draft, "0");
  store.setOption({ name: "--growth", needs_auto: false }, true);
  store.toggle("1");
  assert.equal(store.draft, "0,1 --growth");
});

test("a MIG instance is marked alone", () => {
  store.receive({ type: "state", state: state({ rows: [row("0"), row("1"), row("MIG-1", { parent: "0" })] }) });
  store.toggle("1");
  store.toggle("MIG-1");
  assert.equal(store.draft, "MIG-1");
  store.toggle("0");
  assert.equal(store.draft, "0");
  store.add(["1", "MIG-1"]);
  assert.equal(store.draft, "0,1");
});

test("a device that can't be chosen says why, and can be unmarked", () => {
  store.toggle("1");
  store.receive({ type: "state", state: state({ rows: [row("0"), row("1", { unavailable: "It is lost." })] }) });
  store.toggle("1");
  assert.equal(store.draft, "");
  store.toggle("1");
  assert.deepEqual([store.draft, store.notice.text], ["", "It is lost."]);
});

test("only so many as there are of the least busy can be picked", () => {
  store.pickLeastBusy(1);
  assert.equal(store.draft, "1");
  for (const count of [0, 3]) {
    store.pickLeastBusy(count);
    assert.deepEqual([store.draft, store.notice.text], ["1", "From 1 to 2 can be picked."]);
  }
});

test("the visible devices stand in the order of cuda:i, from 10 on as well", () => {
  const rows = [row("a", { visible_as: "cuda:10" }), row("b", { visible_as: "cuda:9" }), row("c", { visible_as: "" })];
  store.receive({ type: "state", state: state({ rows }) });
  assert.deepEqual(store.visible, ["b", "a"]);
});

test("the draft stays until the kernel says that this choice is done", () => {
  store.toggle("2");
  store.choose(false);
  assert.deepEqual(sent(), { type: "choose", request: "2", restart: false, page: store.page });
  store.receive({ type: "state", state: state({ said: { number: 1, text: "No.", kind: "error", warnings: [] } }) });
  assert.deepEqual([store.draft, store.notice.text], ["2", "No."]);
  store.choose(false);
  store.toggle("0"); // meanwhile the user goes on
  const done = { text: "cuda:0 = GPU 2", kind: "done", warnings: [] };
  store.receive({ type: "state", state: state({ said: { number: 2, ...done } }) });
  assert.equal(store.draft, "2,0");
  store.choose(false);
  store.receive({ type: "state", state: state({ said: { number: 3, ...done } }) });
  assert.equal(store.draft, null);
});

// What the kernel sends, or does not.

test("a figure of the same second replaces the last, and seconds without one are gaps", () => {
  const of = (second, utilization) => state({ history: undefined, second, rows: [row("0", { utilization })] });
  store.receive({ type: "state", state: state({ second: 7, history: { 0: [1, 2] } }) });
  store.receive({ type: "state", state: of(7, 3) });
  store.receive({ type: "state", state: of(10, "?") });
  assert.deepEqual(store.history[0], [1, 3, null, null, null]);
  store.receive({ type: "state", state: of(1000, 5) });
  assert.equal(store.history[0].length, 180);
});

test("a state that equals the last counts as heard, and has its own second", () => {
  store.heardAt = 0;
  store.receive({ type: "same", second: 9, pause: 5 });
  assert.ok(store.heardAt > 0);
  assert.deepEqual([store.second, store.pause, Object.keys(store.rows)], [9, 5000, ["0", "1", "2"]]);
});

test("a kernel is silent only after its pause, and only if somebody watches", () => {
  store.receive({ type: "same", second: 8, pause: 60 });
  store.heardAt = Date.now() - 79_000;
  store.views.add({ visibility: { state: "watched" }, show() {} });
  assert.deepEqual([store.isSilent, store.isUnheard, store.isDead], [false, true, false]);
  store.heardAt = Date.now() - 81_000;
  assert.deepEqual([store.isSilent, store.isUnheard, store.isDead], [true, false, true]);
  store.views.clear();
  assert.equal(store.isSilent, false);
});

test("a lost kernel is told once, sends nothing, and comes back with its next state", () => {
  let lost = 0;
  store.whenLost = () => lost++;
  model.lose();
  assert.match(store.notice.text, /^This panel's kernel has ended/);
  store.choose(false, "1");
  assert.deepEqual([model.sent, lost], [[], 1]);
  clearTimeout(store.asking);
  store.receive({ type: "state", state: state() });
  assert.deepEqual([store.isGone, store.notice.text], [false, ""]);
});

test("a model that can't send any more is a lost kernel", () => {
  model.send = () => {
    throw new Error("the comm is closed");
  };
  store.free();
  assert.equal(store.isGone, true);
  clearTimeout(store.asking);
});

test("a kernel that dies or is replaced loses its panel, until it is closed", () => {
  for (const end of ["dead", "replaced"]) {
    const kernel = makeKernel();
    const own = new Store(makeModel(state(), {}));
    own.close();
    const followed = makeModel(state());
    followed.widget_manager = { kernel };
    const other = new Store(followed);
    kernel.statusChanged.emit("busy");
    kernel.iopubMessage.emit({ header: { session: "1" } });
    assert.equal(other.isGone, false);
    if (end === "dead") kernel.statusChanged.emit("dead");
    else kernel.iopubMessage.emit({ header: { session: "2" } });
    assert.equal(other.isGone, true);
    other.close();
    for (const signal of [kernel.disposed, kernel.statusChanged, kernel.iopubMessage])
      assert.equal(signal.hearers.size, 0);
  }
});
