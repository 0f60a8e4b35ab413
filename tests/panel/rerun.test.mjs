// rerun.js: a choice that came too late is written into the cell of the choice before, and the kernel restarted.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Rerun } from "../../gpu_magic/labextension/page/rerun.js";

/** @type {any} */
const page = globalThis;
page.document = {
  createElement: () => ({ append() {}, appendChild: (one) => one }),
};

function makeCell(source, outputs = []) {
  const sharedModel = {
    source,
    getSource: () => sharedModel.source,
    setSource(text) {
      sharedModel.source = text;
    },
    getOutputs: () => outputs,
    getMetadata: () => undefined,
  };
  return { sharedModel, node: { contains: () => false }, model: { type: "code", executionCount: 2, sharedModel } };
}

// A notebook in which the user has agreed to a restart with GPU 3, and the kernel has yet to answer.
async function asked(request = "3") {
  const cells = [makeCell("%gpus 2,0"), makeCell("train()"), makeCell("%gpus 3", ["gm-rerun"])];
  const [told, sent, hearers] = [[], [], {}];
  const kernel = { status: "busy", restart: async () => sent.push({ type: "restarted" }) };
  const model = {
    page: "p",
    kernel,
    on: (event, hear) => {
      hearers[event] = hear;
    },
    send: (message) => sent.push(message),
  };
  const content = { widgets: cells, activeCell: cells[2], deselectAll() {} };
  const notebook = {
    id: "n",
    node: { addEventListener() {} },
    context: { contentsModel: { writable: true }, model: {} },
    content,
  };
  const app = { shell: { activateById() {} }, commands: { execute: async () => true } };
  const chip = { notebook, kernel, panel: { model }, look: async () => {} };
  const rerun = new Rerun(app, chip, {
    Widget: /** @type {any} */ (class {}),
    Dialog: { cancelButton() {}, warnButton() {} },
    showDialog: async () => ({ button: { accept: true } }),
    Notification: { warning: (text) => told.push(text) },
  });
  rerun.follow(model);
  const done = rerun.ask(request, cells[2]);
  await new Promise((next) => setTimeout(next));
  const hear = (message) => hearers["msg:custom"](message);
  return { first: cells[0].sharedModel, told, sent, hear, done, hearers, page: sent[0]?.page };
}

test("a cell that was edited while the kernel was busy stays as it is", async () => {
  for (const isEdited of [false, true]) {
    const { first, told, sent, hear, done, page } = await asked();
    if (isEdited) first.setSource("import torch\n%gpus 2,0");
    hear({ type: "restart", page });
    await done;
    assert.equal(first.source, isEdited ? "import torch\n%gpus 2,0" : "%gpus 3");
    assert.deepEqual(told, isEdited ? ["Cell [2] was edited meanwhile, so it stays as it is."] : []);
    assert.deepEqual(
      sent.map(({ type }) => type),
      ["choose", "answer_restart", "restarted"],
    );
  }
});

test("what the kernel says of anything else is no answer", async () => {
  const { told, sent, hear, done, page } = await asked();
  hear({ type: "state", state: { said: { number: 2, text: "Freed 2.0 GiB on GPU 2." } } });
  hear({ type: "refused", page: "another", text: "No." });
  hear({ type: "restart", page: "another" });
  hear({ type: "restart", page });
  await done;
  assert.deepEqual(told, []);
  assert.equal(sent.at(-1).type, "restarted");
});

test("a refusal, or the loss of the kernel, ends the request and changes nothing", async () => {
  for (const [end, says] of [
    [({ hear, page }) => hear({ type: "refused", page, text: "No GPU 3." }), "The kernel was not restarted. No GPU 3."],
    [({ hearers }) => hearers.comm_live_update(), "The kernel has ended or was restarted before it could make"],
  ]) {
    const asking = await asked();
    end(asking);
    await asking.done;
    assert.equal(asking.told.length, 1);
    assert.ok(asking.told[0].startsWith(says));
    assert.equal(asking.first.source, "%gpus 2,0");
    assert.equal(asking.sent.length, 1);
  }
});

test("a request of a saved notebook that would run code is not asked for, nor written", async () => {
  for (const request of ["{open('x', 'w')}", "0\nimport os", "0 $(id)", ""]) {
    const { first, told, sent, done } = await asked(request);
    assert.deepEqual(sent, []);
    await done;
    assert.equal(first.source, "%gpus 2,0");
    assert.equal(told.length, 1);
  }
});
