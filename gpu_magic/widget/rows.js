// One row of the panel: a GPU or a MIG instance.
const MOST_USERS = 3;
const CELLS = ["label", "name", "badge", "util", "memory", "heat", "users"];

// The parts of a row, by name. The box is for the eye alone: `aria-selected` says the same.
function makeParts(row, role) {
  const parts = { box: row.appendChild(make("i", "gm-box", { "aria-hidden": "true" })) };
  for (const name of CELLS) parts[name] = row.appendChild(make("span", `gm-${name}`, role ? { role } : {}));
  parts.percent = parts.util.appendChild(make("span", "gm-percent"));
  parts.bar = parts.memory.appendChild(make("i", "gm-bar", { "aria-hidden": "true" }));
  parts.size = parts.memory.appendChild(make("span", "gm-size"));
  return parts;
}

class RowView {
  constructor(key) {
    this.key = key;
    this.isInSight = true; // until it is known
    this.element = makeFocusable("div", "gm-row", { role: "row", tabindex: "-1", "data-key": key });
    Object.assign(this, makeParts(this.element, "gridcell"));
    this.applied = this.badge.appendChild(make("span", "gm-applied"));
    this.arrow = this.badge.appendChild(make("span"));
    this.pending = this.badge.appendChild(make("span", "gm-pending"));
    this.bars = ["mine", "others", "rest"].map((name) => this.bar.appendChild(make("b", `gm-${name}`)));
    this.chart = new Chart();
    this.util.append(this.chart.element);
    this.number = this.label.appendChild(make("span"));
    this.chevron = this.label.appendChild(makeChevron());
  }

  // `mark` says what this kernel has of it, and what was clicked; see `Grid.markOf`. At 64 rows a second, nothing is
  // written that is there already, and no figure that is not in sight.
  show(row, figures, samples, mark, mostUsers) {
    const state = JSON.stringify([row, mark, mostUsers]);
    if (state !== this.state) this.showState(row, mark, mostUsers);
    if (state !== this.state) this.shown = null;
    Object.assign(this, { state, row, figures, samples });
    if (this.isInSight) this.showFigures();
  }

  comeIntoSight(isInSight) {
    this.isInSight = isInSight;
    if (isInSight) this.showFigures();
  }

  showState(row, { order, applied, pending, wasChosen }, mostUsers) {
    const isChosen = order !== "";
    const classes = {
      "gm-chosen": isChosen,
      "gm-changes": pending !== "",
      "gm-implied": !isChosen && !wasChosen, // nobody had chosen it
      "gm-instance": row.parent,
      "gm-split": row.usage === "unknown" && row.visible_as === "",
      "gm-unavailable": row.unavailable,
    };
    const given = Object.keys(classes).filter((name) => classes[name]);
    this.element.className = ["gm-row", `gm-${row.usage}`, ...given].join(" ");
    setAttribute(this.element, "aria-selected", String(isChosen));
    setAttribute(this.element, "aria-disabled", row.unavailable ? "true" : null);
    setAttribute(this.element, "title", row.unavailable || null);
    setAttribute(this.box, "data-order", order);
    setText(this.applied, applied);
    setText(this.arrow, isChosen && applied && pending ? " → " : "");
    setText(this.pending, pending);
    setText(this.number, row.label);
    setText(this.name, row.name.replace(/^NVIDIA /, ""));
    setAttribute(this.name, "title", row.name);
    this.showUsers(row.users, mostUsers);
  }

  showFigures() {
    const { row, figures } = this;
    this.chart.draw(this.samples);
    if (figures === this.shown) return;
    this.shown = figures;
    const { used, usedShare, utilization, temperature, power } = unpackFigures(figures);
    setText(this.size, row.total && usedOfTotal(used, row));
    this.showBar(...row.memory_shares, usedShare);
    setText(this.percent, figure(utilization, "%"));
    setAttribute(this.percent, "data-load", String(Math.ceil((utilization || 0) / 25))); // 0 to 4
    setText(this.heat, [figure(temperature, "°C"), figure(power, "W")].filter(Boolean).join(" · "));
  }

  // Memory in thousandths: this kernel's, other processes', and all that is used.
  showBar(mine, others, used) {
    const widths = [mine, Math.min(others, 1000 - mine), Math.max(0, used - mine - others)];
    widths.forEach((width, index) => {
      const text = `${width / 10}%`;
      if (this.bars[index].style.width !== text) this.bars[index].style.width = text;
    });
  }

  // Those that there is no room for are there for screen readers, and shown where the keyboard has the row.
  showUsers(users, most) {
    const shown = users.length > most ? Math.max(1, most - 1) : users.length;
    const lines = users.map((line, index) => {
      const element = make("span", line.startsWith("this kernel: ") ? "gm-own" : "");
      element.classList.toggle("gm-surplus", index >= shown);
      setText(element, line);
      return element;
    });
    if (shown < users.length) {
      lines.push(make("span", "gm-more", { "aria-hidden": "true" }));
      setAttribute(lines.at(-1), "data-more", `+${users.length - shown} more`);
    }
    this.users.replaceChildren(...lines);
    setAttribute(this.users, "title", users.join("\n"));
  }
}

// A row that is not seen: it is as wide as what must not be cut off in any row, in whatever font.
class SizesView {
  constructor() {
    this.element = make("div", "gm-sizes", { "aria-hidden": "true" });
    this.parts = makeParts(this.element);
    this.parts.util.append(make("span", "gm-plot"));
  }

  show(rows) {
    const longest = (texts) => texts.reduce((one, other) => (other.length > one.length ? other : one), "");
    const ordinal = String(rows.length - 1).replace(/\d/g, "0");
    const total = longest(rows.map((row) => row.total)).replace(/\d/g, "0");
    setText(this.parts.badge, `cuda:${ordinal} → cuda:${ordinal}`);
    setText(this.parts.label, longest(rows.map((row) => row.label)));
    setText(this.parts.name, longest(rows.map(tellingPart)));
    setText(this.parts.percent, "100 %");
    const isLarge = rows.some((row) => row.total.endsWith("TiB")); // where less than one can be in use
    setText(this.parts.size, isLarge ? `000.0 GiB / ${total}` : `${total.replace(/ .*/, "")} / ${total}`);
    setText(this.parts.heat, "100 °C · 1000 W");
    setText(this.parts.users, "somebody…");
  }
}

// What has to be seen of a name: of an instance, its profile and the beginning of its UUID.
function tellingPart({ name, parent }) {
  const text = name.replace(/^NVIDIA (GeForce )?/, "");
  return `${text.slice(0, parent ? text.indexOf("MIG-") + "MIG-0000".length : 8)}…`;
}

function figure(value, unit) {
  return value === "" ? "" : value === null ? "?" : `${value} ${unit}`;
}
