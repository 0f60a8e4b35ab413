// Helpers for all parts of the page: elements, their texts and order, and charts.
// Names on this machine can contain any characters, so they are set as text and never as markup.
function make(tag, className = "", attributes = {}, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}

// Keys pressed in the panel must not trigger the notebook's shortcuts. JupyterLab checks only the focused
// element, so every focusable element needs the attribute.
function makeFocusable(tag, className = "", attributes = {}, text = "") {
  return make(tag, className, { ...attributes, "data-lm-suppress-shortcuts": "true" }, text);
}

function makeButton(text, act, className = "", attributes = {}) {
  const button = makeFocusable("button", className, { type: "button", ...attributes }, text);
  button.addEventListener("click", act);
  return button;
}

// Setting the same text again would cause a layout, and screen readers would read the text again.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Returns a view for each key, in this order. Existing views are reused.
function viewsOf(views, keys, create) {
  return new Map(keys.map((key) => [key, views.get(key) ?? create(key)]));
}

// Sets the children in this order. Children already in place are not moved, because one could have the focus.
function arrange(parent, children) {
  const kept = new Set(children);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let next = parent.firstChild;
  for (const child of children) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
}

// A random name for this page's copy of a model, or for an element that ARIA refers to.
const makeName = () => Math.random().toString(36).slice(2);

// A figure over the last minutes: a line, filled below, from the left, with gaps for unknown values.
const SAMPLES = 180;
const SVG = "http://www.w3.org/2000/svg";

class Chart {
  // `height` is in units of the drawing. `most` is the highest value. `write` formats a value.
  constructor(height = 20, most = 100, write = (value) => `${value} %`) {
    this.height = height;
    this.most = most;
    this.write = write;
    /** @type {(number | null)[]} */
    this.samples = [];
    /** @type {HTMLElement | undefined} */
    this.readout = undefined;
    this.element = make("span", "gm-plot", { "aria-hidden": "true" });
    const attributes = { viewBox: `0 0 ${SAMPLES} ${height}`, class: "gm-chart", preserveAspectRatio: "none" };
    this.svg = this.element.appendChild(makeSvg("svg", attributes));
    // The colors of the scale, from the lowest value at the bottom to the highest at the top.
    const id = `gm-heat-${makeName()}`;
    const colors = makeSvg("linearGradient", { id, gradientUnits: "userSpaceOnUse", x1: 0, x2: 0, y1: height, y2: 0 });
    colors.append(makeSvg("stop", { class: "gm-cool" }), makeSvg("stop", { class: "gm-hot", offset: 0.9 }));
    this.area = makeSvg("path", { class: "gm-chart-area", fill: `url(#${id})` });
    this.line = makeSvg("path", { class: "gm-chart-line", stroke: `url(#${id})` });
    this.svg.append(colors, this.area, this.line);
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => this.readout?.remove());
  }

  draw(samples) {
    this.samples = samples;
    const { height, most } = this;
    let line = "";
    let area = "";
    for (let index = 0; index < samples.length; index++) {
      if (samples[index] === null) continue;
      const begin = index;
      let part = "";
      for (let end; index < samples.length && samples[index] !== null; index = end) {
        // The line stays one unit from the edges. Its first sample is one unit wide: a single one is visible.
        const y = (height - 1 - (Math.min(most, samples[index]) / most) * (height - 2)).toFixed(1);
        for (end = index + 1; end < samples.length && samples[end] === samples[index]; ) end++;
        part += part ? `L${index + 1} ${y}` : `${index} ${y}h1`;
        if (end > index + 1) part += `H${end}`;
      }
      line += `M${part}`;
      area += `M${begin} ${height}L${part}V${height}Z`;
    }
    setAttribute(this.line, "d", line);
    setAttribute(this.area, "d", area);
  }

  // Shows the value under the pointer, and its age.
  point(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const place = Math.floor(((event.clientX - left) / width) * SAMPLES);
    const index = Math.min(Math.max(place, 0), this.samples.length - 1);
    if (index < 0) return;
    this.readout ??= make("span", "gm-readout");
    const value = this.samples[index];
    setText(this.readout, `${value === null ? "?" : this.write(value)}, ${this.samples.length - 1 - index} s ago`);
    this.element.style.setProperty("--gm-place", `${((index + 0.5) / SAMPLES) * width}px`);
    if (!this.readout.parentNode) this.element.append(this.readout);
  }
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
