// A restart of the kernel through the Jupyter server that this page comes from, as the page's own menu would do
// it: no "appears to have died". Of several pages that a kernel has, one does it: the one that it names.
const ATTEMPT = 8000; // milliseconds; the kernel waits a little longer before it ends itself

// What a page's copy of a model, or a view of it, is known by to the kernel.
const newPage = () => Math.random().toString(36).slice(2);

// Answers the kernel's wish to be restarted; tells whether it was, by this page.
async function answerRestart({ kernel, page }, me, ask) {
  if (page && page !== me) return false;
  ask({ do: "can", page: me });
  if (!page) return false; // the kernel will name one of those that can
  const isDone = await restartThroughServer(kernel);
  if (!isDone) ask({ do: "cannot", page: me });
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
    const signal = AbortSignal.timeout(ATTEMPT);
    const reply = await fetch(url, { method: "POST", headers, credentials: "same-origin", signal });
    // The server is done, and its own sockets are yet to find the new kernel: what a cell says now can get lost.
    await new Promise((done) => setTimeout(done, 1000));
    return reply.ok;
  } catch {
    return false;
  }
}
