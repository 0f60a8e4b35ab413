// Writes a line into the notebook, so that "Restart Kernel and Run All Cells" chooses the same GPUs.
// JupyterLab and Notebook 7 hand a widget the notebook that it is shown in, and extension.js hands the panel of a chip its
// own; other front ends do not.

// The notebook of a panel; undefined where the page does not tell.
function findNotebook(model) {
  const notebook = (model.get("notebook") || model.widget_manager)?.context?.model?.sharedModel;
  return notebook?.insertCell && notebook.cells ? notebook : undefined;
}

// The place of the cell below which a panel writes: the active one, or for a widget the one whose output has its key.
function findPlace(model, { cells }) {
  const notebook = model.get("notebook");
  if (notebook) return notebook.content.activeCellIndex;
  return cells.findIndex((cell) => JSON.stringify(cell.getOutputs?.() ?? []).includes(model.get("key")));
}

// Writes a line in place of the one that was written before, else into a new cell. Returns whether there was a place for it.
function writeLine(model, line) {
  const notebook = findNotebook(model);
  const written = notebook.cells.find((cell) => cell.getMetadata("gpu_magic")?.is_choice);
  if (written && /^%gpus [\w,:. -]+$/.test(written.getSource())) {
    written.setSource(line);
    return true;
  }
  const place = findPlace(model, notebook);
  if (place < 0) return false;
  written?.deleteMetadata("gpu_magic"); // it was changed by hand since, and is left alone
  notebook.insertCell(place + 1, { cell_type: "code", source: line, metadata: { gpu_magic: { is_choice: true } } });
  return true;
}
