// One GPU or MIG instance.
const MOST_USERS = 3;

class RowView {
  constructor(key) {
    this.key = key;
    this.element = makeFocusable("div", "gm-row", { role: "row", tabindex: "-1", "data-key": key });
    for (const name of ["badge", "label", "name", "memory", "util", "heat", "users"]) {
      this[name] = this.element.appendChild(make("span", `gm-${name}`, { role: "gridcell" }));
    }
    const bar = make("i", "gm-bar", { "aria-hidden": "true" });
    this.bars = ["mine", "others", "rest"].map((whose) => bar.appendChild(make("b", `gm-${whose}`)));
    this.size = make("span", "gm-size");
    this.memory.append(bar, this.size);
    this.chart = new Chart();
    this.percent = make("span", "gm-percent");
    this.util.append(this.chart.element, this.percent);
  }

  show(row, [used, share, util, temp, watts], samples, badge, store) {
    const classes = ["gm-row", `gm-${row.kind}`];
    if (badge) classes.push("gm-chosen");
    if (store.draft !== null) classes.push("gm-draft");
    if (row.part) classes.push("gm-part");
    if (row.why) classes.push("gm-why");
    if (row.here === "not given") classes.push("gm-barred");
    const className = classes.join(" ");
    if (this.element.className !== className) this.element.className = className;
    setAttribute(this.element, "aria-selected", String(Boolean(badge)));
    setAttribute(this.element, "aria-disabled", row.why ? "true" : null);
    setAttribute(this.element, "title", row.why || null);
    setText(this.badge, badge || (store.draft === null && row.here !== "not visible" ? row.here : ""));
    setText(this.label, row.label);
    setText(this.name, row.name.replace(/^NVIDIA /, ""));
    setAttribute(this.name, "title", row.name);
    setText(this.size, row.total && `${used === null ? "?" : used.toFixed(1)} / ${row.total}`);
    this.showBar(...row.whose, share);
    this.chart.draw(samples);
    setText(this.percent, figure(util, "%"));
    setText(this.heat, [figure(temp, "°C"), figure(watts, "W")].filter(Boolean).join(" · "));
    this.showUsers(row);
  }

  showBar(mine, others, all) {
    const widths = [mine, Math.min(others, 1000 - mine), Math.max(0, all - mine - others)];
    widths.forEach((width, place) => {
      const text = `${width / 10}%`;
      if (this.bars[place].style.width !== text) this.bars[place].style.width = text;
    });
  }

  showUsers({ users }) {
    const more = users.length - MOST_USERS;
    const lines = more > 0 ? [...users.slice(0, MOST_USERS - 1), `and ${more + 1} more`] : users;
    while (this.users.childElementCount > lines.length) this.users.lastElementChild.remove();
    while (this.users.childElementCount < lines.length) this.users.append(make("span"));
    lines.forEach((line, place) => {
      const element = this.users.children[place];
      setText(element, line);
      setAttribute(element, "class", line.startsWith("this kernel: ") ? "gm-mine" : null);
    });
    setAttribute(this.users, "title", users.join("\n"));
  }
}

function utilization([, , util]) {
  return typeof util === "number" ? util : null;
}

// A figure is a number, null where it is unknown, and "" where there is none to have.
function figure(value, unit) {
  return value === "" ? "" : value === null ? "?" : `${value} ${unit}`;
}
