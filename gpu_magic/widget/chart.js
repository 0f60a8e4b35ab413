// Utilization over the last minutes: a line, filled below, with a gap where nothing was known.
const SAMPLES = 180;
const CHART_HEIGHT = 22;
const SVG = "http://www.w3.org/2000/svg";

class Chart {
  constructor() {
    this.element = document.createElementNS(SVG, "svg");
    this.element.setAttribute("class", "gm-chart");
    this.element.setAttribute("viewBox", `0 0 ${SAMPLES} ${CHART_HEIGHT}`);
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("aria-hidden", "true");
    this.area = this.element.appendChild(document.createElementNS(SVG, "path"));
    this.line = this.element.appendChild(document.createElementNS(SVG, "path"));
    this.area.setAttribute("class", "gm-chart-area");
    this.line.setAttribute("class", "gm-chart-line");
  }

  draw(samples) {
    const first = SAMPLES - samples.length;
    let line = "";
    let area = "";
    let begin = null;
    const y = (value) => (CHART_HEIGHT - 1 - (value / 100) * (CHART_HEIGHT - 2)).toFixed(1);
    for (let index = 0; index <= samples.length; index++) {
      const value = index < samples.length ? samples[index] : null;
      if (value === null) {
        if (begin !== null) area += `V${CHART_HEIGHT}H${begin}Z`;
        begin = null;
        continue;
      }
      const x = first + index;
      // Each sample spans its second, so that a single one can be seen.
      line += `${begin === null ? "M" : "L"}${x} ${y(value)}h1`;
      area += `${begin === null ? `M${x} ${CHART_HEIGHT}V` : `L${x} `}${y(value)}h1`;
      begin ??= x;
    }
    setAttribute(this.line, "d", line);
    setAttribute(this.area, "d", area);
  }
}
