// The prebuilt extension for JupyterLab and Notebook 7: a hand-written container of webpack's module
// federation. It uses undocumented interfaces: `window._JUPYTERLAB[name]` with `init(scope)` and
// `get(module)`, and modules in scope[name][version] with `get` and `loaded`. Seen with JupyterLab 4.6 and
// 4.7.0a2, Notebook 7.6 and 7.7.0a2.
(() => {
  const here = /** @type {HTMLScriptElement} */ (document.currentScript).src;
  // What is used of each module.
  const MODULES = {
    "@lumino/widgets": ["Widget"],
    "@lumino/signaling": ["Signal"],
    "@lumino/polling": ["Poll"],
    "@jupyterlab/statusbar": ["IStatusBar"],
    "@jupyterlab/running": ["IRunningSessionManagers"],
    "@jupyterlab/settingregistry": ["ISettingRegistry"],
    "@jupyterlab/coreutils": ["PageConfig"],
    "@jupyterlab/services": ["ServerConnection"],
    "@jupyterlab/apputils": ["Dialog", "Notification", "showDialog"],
    "@jupyterlab/ui-components": ["notebookIcon"],
  };
  let shared; // the application's own modules: a factory by name and version

  // What is used of the application's copy of a module, in the version that the application uses; undefined
  // if it has none.
  async function take([name, used]) {
    const versions = Object.values(shared[name] ?? {});
    const found = versions.find((version) => version.loaded) ?? versions[0];
    const module = found ? (await found.get())() : {};
    return Object.fromEntries(used.map((one) => [one, module[one]]));
  }

  const containers = (globalThis._JUPYTERLAB ??= {});
  containers["gpu-magic"] = {
    init(scope) {
      shared = scope;
    },
    async get() {
      const { makePlugin } = await import(String(new URL("extension.js", here)));
      const modules = Object.assign({}, ...(await Promise.all(Object.entries(MODULES).map(take))));
      const machine = Object.assign(document.createElement("link"), {
        rel: "stylesheet",
        href: new URL("machine.css", here),
      });
      // The panel's style, until a kernel's style, possibly of another version, replaces it (connection.js).
      const panel = Object.assign(document.createElement("style"), { id: "gpu-magic-style" });
      document.head.append(machine, panel);
      const style = fetch(new URL("panel.css", here)).then((answer) => answer.text());
      style.then((text) => (panel.textContent ||= text));
      const module = { __esModule: true, default: makePlugin(modules) };
      return () => module;
    },
  };
})();
