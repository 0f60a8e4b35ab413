// The panel's scripts are sent as one module (gpu_magic/panel/__init__.py), so each sees the functions of the others.
// connection.js is also a module by itself, for the prebuilt extension.
declare const findChoice: typeof import("../../gpu_magic/labextension/page/connection.js").findChoice;
declare const afterCells: typeof import("../../gpu_magic/labextension/page/connection.js").afterCells;
declare const whenReplaced: typeof import("../../gpu_magic/labextension/page/connection.js").whenReplaced;
declare const findComm: typeof import("../../gpu_magic/labextension/page/connection.js").findComm;
declare const openPanel: typeof import("../../gpu_magic/labextension/page/connection.js").openPanel;
declare var _JUPYTERLAB: Record<string, object> | undefined; // the containers of JupyterLab's module federation
// The options of a choice, which Python puts in front of the panel's scripts (gpu_magic/panel/__init__.py).
declare const OPTIONS: {
  name: string;
  help: string;
  example: string;
  is_flag: boolean;
  is_size: boolean;
  is_filter: boolean;
  needs_auto: boolean;
}[];
