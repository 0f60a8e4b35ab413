// Restarts the kernel through the Jupyter server that this page comes from, as the page's own menu would.
// JupyterLab then shows no "appears to have died". Of several pages of a kernel, the one that the kernel names does it.
const RESTART_LIMIT = 8000; // milliseconds; the kernel waits a little longer before it restarts itself

// Answers the kernel's request for a restart; returns whether this page has restarted it.
async function answerRestart({ kernel, page }, me, send) {
  if (page && page !== me) return false;
  send(pageMessage.answerRestart(true, me));
  if (!page) return false; // the kernel will name one of those that can
  const isDone = await restartThroughServer(kernel);
  if (!isDone) send(pageMessage.answerRestart(false, me));
  return isDone;
}

async function restartThroughServer(kernel) {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
    const base = config.baseUrl ?? document.body.dataset.baseUrl;
    if (!kernel || !base) return false; // VS Code, Colab
    const url = new URL(`api/kernels/${encodeURIComponent(kernel)}/restart`, new URL(base, location.href));
    if (url.origin !== location.origin) return false;
    const headers = {};
    const xsrf = document.cookie.match(/(?:^|;\s*)_xsrf=([^;]*)/)?.[1];
    if (xsrf) headers["X-XSRFToken"] = decodeURIComponent(xsrf);
    if (config.token) headers.Authorization = `token ${config.token}`;
    const signal = AbortSignal.timeout(RESTART_LIMIT);
    const reply = await fetch(url, { method: "POST", headers, credentials: "same-origin", signal });
    // The server's own sockets have yet to find the new kernel: until then, what a cell prints can get lost.
    await new Promise((done) => setTimeout(done, 1000));
    return reply.ok;
  } catch {
    return false;
  }
}
