// The messages between page and kernel, in both directions; page_messages.py and kernel_messages.py say what each field is.

// What a page sends.
const pageMessage = {
  // Whether a view is "watched", "unwatched" (nobody has used the page for minutes) or "hidden".
  setVisibility: (view, visibility, version) => ({ type: "set_visibility", view, visibility, version }),
  // Devices were clicked that are not applied yet; null: what was clicked is dropped.
  setDraft: (request, page, click, number) => ({ type: "set_draft", request, page, click, number }),
  // Choose, as soon as no cell runs.
  choose: (request, restart, page) => ({ type: "choose", request, restart, page }),
  // Choose, as soon as nobody else has these; "waiting" tells of it.
  wait: (request) => ({ type: "wait", request }),
  // Wait no longer.
  stopWaiting: () => ({ type: "stop_waiting" }),
  // Whether this page can restart the kernel.
  answerRestart: (can, page) => ({ type: "answer_restart", can, page }),
  // Which rows of a view are open; the kernel answers with the detail of each.
  setDetails: (view, keys) => ({ type: "set_details", view, keys }),
  // End a process of one's own: by TERM, or if that was of no use by KILL.
  endProcess: (pid, started, kill) => ({ type: "end_process", pid, started, kill }),
  // Do what %gpu_free does, as soon as no cell runs.
  free: () => ({ type: "free" }),
  // A page that has no widget begins with one that connection.js has: {type: "attach", page}.
};

// What the kernel sends, by type:
//   state       {state}                          everything, as in the model's `full_state`
//   changes     {second, unbroken, version, header, rows, figures}
//                                                what one reading has changed; empty parts are left out
//   heartbeat   {second, unbroken}               nothing has changed
//   draft       {request, number, clicks, page, version}
//                                                what was clicked, with the number of each page's latest click in it
//   outdated    {request, number, clicks}        a click was on an older draft: repeat it on this one
//   notice      {text, kind, warnings, version}  a text to show; kind: info, done, warning, error; warnings: its lines that warn
//   waiting     {text, version}                  who has the GPUs that are waited for; empty: nothing is waited for
//   paused      {is_paused}                      the extension was unloaded, or is loaded again
//   restarting  {}                               the kernel is about to be restarted
//   restart     {kernel, page}                   restart the kernel; page "": who can?
//   detail      {second, unbroken, key, detail}  of a row that is open: what has changed; at first all, see detail.py
//   attached    {page, script, style, state}     what a page needs that has no widget
//   closed      {}                               the extension was unloaded: such a page has no kernel any more

// A device's figures are sent as an array. null: unknown; "": the device has no such figure.
function unpackFigures([used, usedShare, utilization, temperature, power]) {
  return { used, usedShare, utilization, temperature, power }; // GiB, thousandths, percent, °C, watts
}

// Memory in GiB as a text, as text.py writes it.
function sizeText(gib) {
  return Math.round(gib * 10) < 10240 ? `${gib.toFixed(1)} GiB` : `${(gib / 1024).toFixed(1)} TiB`;
}

// Memory in use beside the total, whose unit stands once behind both: `0.5 / 80.0 GiB`, `0.5 GiB / 16.0 TiB`.
function usedOfTotal(used, { total }) {
  if (used === null) return `? / ${total}`;
  const unit = total.endsWith("TiB") ? " TiB" : " GiB";
  return `${sizeText(used).replace(unit, "")} / ${total}`;
}

// A name for this page's copy of a model, or for a view of it.
const makeName = () => Math.random().toString(36).slice(2);
