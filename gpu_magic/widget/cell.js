// Writes a line into the notebook, so that "Restart Kernel and Run All Cells" chooses the same GPUs.
// JupyterLab and Notebook 7 hand a widget the notebook that it is shown in; other front ends do not.

// The notebook that a widget is shown in; undefined where the page does not tell.
function findNotebook(model) {
  const notebook = model.widget_manager?.context?.model?.sharedModel;
  return notebook?.insertCell && notebook.cells ? notebook : undefined;
}

// Writes a line in place of the one that was written before, else below the cell whose output has the panel with this
// key. Returns whether there was a place for it.
function writeLine(notebook, key, line) {
  const written = notebook.cells.find((cell) => cell.getMetadata("gpu_magic")?.is_choice);
  if (written && /^%gpus [\w,:. -]+$/.test(written.getSource())) {
    written.setSource(line);
    return true;
  }
  const place = notebook.cells.findIndex((cell) => JSON.stringify(cell.getOutputs?.() ?? []).includes(key));
  if (place < 0) return false;
  written?.deleteMetadata("gpu_magic"); // it was changed by hand since, and is left alone
  notebook.insertCell(place + 1, { cell_type: "code", source: line, metadata: { gpu_magic: { is_choice: true } } });
  return true;
}
