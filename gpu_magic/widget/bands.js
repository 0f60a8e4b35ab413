// Cells as bands behind a chart, with their numbers below it, where the times are that it spans.
const BAND_GAP = 4; // pixels between a number and what stands beside it

class Bands {
  // `times`: the texts at the ends of the axis, which numbers keep clear of.
  constructor(chart, axis, times) {
    this.chart = chart;
    this.axis = axis;
    this.times = times;
    this.labels = axis.appendChild(make("span", "gm-bands"));
    this.paths = {};
    for (const name of ["even", "odd", "beside", "edges", "beside-edges"]) {
      this.paths[name] = makeSvg("path", { class: `gm-band-${name}` });
    }
    chart.area.before(...Object.values(this.paths));
    // A panel that becomes wider has room for more numbers.
    this.observer = new ResizeObserver(() => this.label());
    this.observer.observe(axis);
    this.show([]);
  }

  show(bands) {
    this.chart.bands = this.bands = bands;
    this.draw();
    this.label();
  }

  draw() {
    const { height } = this.chart.scale;
    const drawn = Object.fromEntries(Object.keys(this.paths).map((name) => [name, ""]));
    for (const { from, to, isOdd, isBeside } of this.bands) {
      const [left, right] = [from.toFixed(1), to.toFixed(1)];
      drawn[isBeside ? "beside" : isOdd ? "odd" : "even"] += `M${left} 0H${right}V${height}H${left}Z`;
      // What began before the chart does, or runs, has no edge there. Of a short cell, one line is all.
      let edges = from > 0 ? `M${left} 0V${height}` : "";
      if (to < this.chart.samples.length && (to - from >= 1 || !edges)) edges += `M${right} 0V${height}`;
      drawn[isBeside ? "beside-edges" : "edges"] += edges;
    }
    for (const [name, path] of Object.entries(drawn)) setAttribute(this.paths[name], "d", path);
  }

  // Writes numbers where there is room: from where a cell begins up to the next one, the longest cells first.
  label() {
    const width = this.axis.clientWidth;
    const wanted = width ? this.rooms(width) : [];
    if (!wanted.length && !this.labels.children.length) return;
    while (this.labels.children.length > wanted.length) this.labels.lastChild.remove();
    const elements = wanted.map(({ label }, index) => {
      const element = this.labels.children[index] ?? this.labels.appendChild(make("span"));
      setText(element, label);
      return element;
    });
    const sizes = elements.map((element) => element.offsetWidth);
    const taken = this.takenByTimes(width);
    for (const [index, room] of wanted.entries()) {
      const place = findRoom(room.from, room.to, sizes[index], taken);
      elements[index].style.visibility = place === null ? "hidden" : "";
      if (place === null) continue;
      elements[index].style.insetInlineStart = `${place}px`;
      taken.push([place - BAND_GAP, place + sizes[index] + BAND_GAP]);
    }
  }

  // Returns the numbers that may have room, in pixels.
  rooms(width) {
    const scale = width / SAMPLES;
    const begins = this.bands.filter(({ isBeside }) => !isBeside).map(({ from }) => from);
    const rooms = [];
    for (const { label, from, to, isBeside } of this.bands) {
      const next = isBeside ? to : (begins.find((begin) => begin > from) ?? SAMPLES);
      const room = { label, from: from * scale, to: next * scale, length: to - from };
      if (label && room.to - room.from > 3 * BAND_GAP) rooms.push(room);
    }
    return rooms.sort((one, other) => other.length - one.length);
  }

  takenByTimes(width) {
    const [first, last] = this.times.map((time) => time.offsetWidth);
    const taken = [];
    if (first) taken.push([0, first + BAND_GAP]);
    if (last) taken.push([width - last - BAND_GAP, width]);
    return taken;
  }

  close() {
    this.observer.disconnect();
  }
}

// Returns the first place of this size between two others, beside what is taken; null: there is none.
function findRoom(from, to, size, taken) {
  let place = from;
  for (const [begin, end] of [...taken].sort(([one], [other]) => one - other)) {
    if (place < end && place + size > begin) place = end;
  }
  return place + size <= to ? place : null;
}

// Returns the bands at a place of a chart; a line is met nearby, too.
function bandsAt(bands, place, near) {
  const within = bands.filter(({ from, to }) => from <= place && place <= to);
  return within.length ? within : bands.filter(({ from, to }) => from - near <= place && place <= to + near).slice(0, 1);
}
