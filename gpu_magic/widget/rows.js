// One row of the panel: a GPU or a MIG instance.
const MOST_USERS = 3;

class RowView {
  constructor(key) {
    this.key = key;
    this.element = makeFocusable("div", "gm-row", { role: "row", tabindex: "-1", "data-key": key });
    for (const name of ["badge", "label", "name", "memory", "util", "heat", "users"]) {
      this[name] = this.element.appendChild(make("span", `gm-${name}`, { role: "gridcell" }));
    }
    const bar = make("i", "gm-bar", { "aria-hidden": "true" });
    this.bars = ["mine", "others", "rest"].map((name) => bar.appendChild(make("b", `gm-${name}`)));
    this.size = make("span", "gm-size");
    this.memory.append(bar, this.size);
    this.chart = new Chart();
    this.percent = make("span", "gm-percent");
    this.util.append(this.chart.element, this.percent);
  }

  show(row, figures, samples, badge, isDraft) {
    const { used, usedShare, utilization, temperature, power } = unpackFigures(figures);
    const classes = ["gm-row", `gm-${row.usage}`];
    if (badge) classes.push("gm-chosen");
    if (isDraft) classes.push("gm-draft");
    if (row.parent) classes.push("gm-instance");
    if (row.unavailable) classes.push("gm-unavailable");
    if (row.visible_as === "not given") classes.push("gm-not-given");
    const className = classes.join(" ");
    if (this.element.className !== className) this.element.className = className;
    setAttribute(this.element, "aria-selected", String(Boolean(badge)));
    setAttribute(this.element, "aria-disabled", row.unavailable ? "true" : null);
    setAttribute(this.element, "title", row.unavailable || null);
    setText(this.badge, badge || (!isDraft && row.visible_as !== "not visible" ? row.visible_as : ""));
    setText(this.label, row.label);
    setText(this.name, row.name.replace(/^NVIDIA /, ""));
    setAttribute(this.name, "title", row.name);
    setText(this.size, row.total && `${used === null ? "?" : used.toFixed(1)} / ${row.total}`);
    this.showBar(...row.memory_shares, usedShare);
    this.chart.draw(samples);
    setText(this.percent, figure(utilization, "%"));
    setText(this.heat, [figure(temperature, "°C"), figure(power, "W")].filter(Boolean).join(" · "));
    this.showUsers(row);
  }

  // Memory in thousandths: this kernel's, other processes', and all that is used.
  showBar(mine, others, used) {
    const widths = [mine, Math.min(others, 1000 - mine), Math.max(0, used - mine - others)];
    widths.forEach((width, index) => {
      const text = `${width / 10}%`;
      if (this.bars[index].style.width !== text) this.bars[index].style.width = text;
    });
  }

  showUsers({ users }) {
    const more = users.length - MOST_USERS;
    const lines = more > 0 ? [...users.slice(0, MOST_USERS - 1), `and ${more + 1} more`] : users;
    while (this.users.childElementCount > lines.length) this.users.lastElementChild.remove();
    while (this.users.childElementCount < lines.length) this.users.append(make("span"));
    lines.forEach((line, index) => {
      const element = this.users.children[index];
      setText(element, line);
      setAttribute(element, "class", line.startsWith("this kernel: ") ? "gm-mine" : null);
    });
    setAttribute(this.users, "title", users.join("\n"));
  }
}

function figure(value, unit) {
  return value === "" ? "" : value === null ? "?" : `${value} ${unit}`;
}
