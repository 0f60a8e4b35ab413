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
