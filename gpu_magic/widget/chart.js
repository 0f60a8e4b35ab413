// A figure over the last minutes: a line, filled below, from the left, with a gap where nothing was known.
const SAMPLES = 180;
const SVG = "http://www.w3.org/2000/svg";

// What a chart is drawn in: its height in the units of its drawing, and the highest value, a whole number.
class Scale {
  constructor(height, most) {
    this.height = height;
    this.most = most;
    // Where each value stands; the line is one unit from the edges.
    this.heights = Array.from({ length: most + 1 }, (_, value) => (height - 1 - (value / most) * (height - 2)).toFixed(1));
  }
}

const SMALL = new Scale(20, 100); // percent
const LARGE = new Scale(56, 100);
const LARGE_SHARES = new Scale(56, 1000); // thousandths

class Chart {
  // `write` returns a value as text.
  constructor(scale = SMALL, write = (value) => `${value} %`) {
    this.scale = scale;
    this.write = write;
    this.samples = [];
    this.element = make("span", "gm-plot", { "aria-hidden": "true" });
    const viewBox = `0 0 ${SAMPLES} ${scale.height}`;
    this.svg = this.element.appendChild(makeSvg("svg", { viewBox, class: "gm-chart" }));
    setAttribute(this.svg, "preserveAspectRatio", "none");
    const color = `gm-heat-${makeName()}`;
    this.svg.append(makeColors(color, scale.height));
    const paint = `url(#${color})`;
    this.area = this.svg.appendChild(makeSvg("path", { class: "gm-chart-area", fill: paint }));
    this.line = this.svg.appendChild(makeSvg("path", { class: "gm-chart-line", stroke: paint }));
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => this.readout?.remove());
  }

  draw(samples) {
    this.samples = samples;
    const { height, most, heights } = this.scale;
    let line = "";
    let area = "";
    for (let index = 0; index < samples.length; index++) {
      if (samples[index] === null) continue;
      const begin = index;
      let part = "";
      for (let end; index < samples.length && samples[index] !== null; index = end) {
        const y = heights[Math.min(most, samples[index])];
        for (end = index + 1; end < samples.length && samples[end] === samples[index]; ) end++;
        // Each sample spans its second at first, so that a single one can be seen.
        part += part ? `L${index + 1} ${y}` : `${index} ${y}h1`;
        if (end > index + 1) part += `H${end}`;
      }
      line += `M${part}`;
      area += `M${begin} ${height}L${part}V${height}Z`;
    }
    if (line === this.drawn) return;
    this.drawn = line;
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }

  // Shows what was where the pointer is: the value, and how long ago.
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

// The colors of the scale, from no work at the bottom to all at the top.
function makeColors(id, height) {
  const colors = makeSvg("linearGradient", { id, gradientUnits: "userSpaceOnUse", x1: 0, x2: 0, y1: height, y2: 0 });
  colors.append(makeSvg("stop", { class: "gm-cool" }), makeSvg("stop", { class: "gm-hot", offset: 0.9 }));
  return colors;
}
