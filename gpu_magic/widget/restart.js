// Asks the Jupyter server that this page comes from to restart a kernel, as its own menu would: no dialog, and
// no "appears to have died". False where there is no such server (VS Code, Colab): the kernel then does it.
async function restartThroughServer(kernel) {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
    const base = config.baseUrl ?? document.body.dataset.baseUrl;
    if (!kernel || !base) return false;
    const url = new URL(`api/kernels/${encodeURIComponent(kernel)}/restart`, new URL(base, location.href));
    if (url.origin !== location.origin) return false;
    const headers = {};
    const xsrf = document.cookie.match(/(?:^|;\s*)_xsrf=([^;]*)/)?.[1];
    if (xsrf) headers["X-XSRFToken"] = decodeURIComponent(xsrf);
    if (config.token) headers.Authorization = `token ${config.token}`;
    const reply = await fetch(url, { method: "POST", headers, credentials: "same-origin" });
    // The server is done, and its own sockets are yet to find the new kernel: what a cell says now can get lost.
    await new Promise((done) => setTimeout(done, 1000));
    return reply.ok;
  } catch {
    return false;
  }
}
