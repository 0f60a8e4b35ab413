// Calls a function when the page learns that its kernel has gone; returns what ends that.
function whenKernelIsLost(model, lose) {
  // By a restart, as the widget manager says.
  model.on("comm_live_update", lose);
  // By a shutdown or a crash, as JupyterLab and Notebook 7 tell; in other front ends, figures cease to come.
  const kernel = model.widget_manager?.kernel;
  const loseIfDead = (_kernel, status) => status === "dead" && lose();
  kernel?.disposed?.connect?.(lose);
  kernel?.statusChanged?.connect?.(loseIfDead);
  const stop = whenReplaced(kernel, lose);
  return () => {
    stop();
    kernel?.disposed?.disconnect?.(lose);
    kernel?.statusChanged?.disconnect?.(loseIfDead);
  };
}

// Where the page can find the panel's next kernel, and where it can't.
const RESTARTED = [
  "The kernel was restarted: run %load_ext gpu_magic, which applies a choice that was made for it. After that, this panel goes on.",
  "The kernel was restarted: run %load_ext gpu_magic, which applies a choice that was made for it, and %gpu_panel.",
];
const GONE = [
  "The kernel of this panel has gone. After the next %load_ext gpu_magic, this panel goes on.",
  "The kernel of this panel has gone: %load_ext gpu_magic and %gpu_panel make a new one.",
];
const SILENT = "The kernel does not answer, or can't be reached. If it stays so, restart the kernel.";
