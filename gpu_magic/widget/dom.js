// Makes elements and sets their text. Names on this machine can be anything, and never become markup.
function make(tag, className = "", attributes = {}) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Keys pressed here are meant for the panel, and not for the notebook's shortcuts. JupyterLab looks at the
// element with the focus only, so every element that can have it needs the attribute.
function makeFocusable(tag, className = "", attributes = {}) {
  return make(tag, className, { ...attributes, "data-lm-suppress-shortcuts": "true" });
}

// Writing the same text again would cost a layout, and screen readers would read it again.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
