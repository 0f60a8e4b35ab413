// The draft that the kernel has, and on top of it the clicks of this page that the kernel has yet to confirm.
// A click is kept as a change of the draft, and not as its outcome: it is repeated where the draft was changed
// elsewhere meanwhile.
class Clicks {
  constructor(page, send) {
    this.page = page;
    this.send = send;
    this.latest = 0; // the number of the latest click, and of the latest that a choice has followed
    this.chosen = 0;
    this.waiting = []; // each with its number, and a function from the request before it to the one after
    this.unsure = []; // those of which a state has not told whether the kernel has them
  }

  // A request; "": no device so far; null: nothing was clicked.
  get draft() {
    return this.waiting.reduce((request, { change }) => change(request), this.known);
  }

  add(change) {
    this.waiting.push({ number: ++this.latest, change });
    this.say();
  }

  say() {
    this.send(pageMessage.setDraft(this.draft, this.page, this.latest, this.number));
  }

  // From here on they are part of a choice.
  choose() {
    this.chosen = this.latest;
  }

  drop() {
    this.waiting = [];
  }

  // Begins with the draft of a state.
  reset(request, number) {
    this.known = request;
    this.number = number;
    this.unsure = this.waiting;
    this.drop();
  }

  // Takes a draft from the kernel; returns whether it is another one than before.
  take({ request, number, page, click }) {
    if (page === this.page) {
      this.waiting = this.waiting.filter((one) => one.number > click);
      this.unsure = this.unsure.filter((one) => one.number > click);
    }
    const isNew = request !== this.known;
    this.known = request;
    this.number = number;
    return isNew;
  }

  // Takes the draft on which a click, and those after it, are to be repeated; not those that a choice has followed.
  repeat(message) {
    const isNew = this.take(message);
    const lost = this.unsure.filter((one) => one.number >= message.click);
    this.unsure = [];
    this.waiting = [...lost, ...this.waiting].filter((one) => one.number > this.chosen);
    if (this.waiting.length) this.say();
    return isNew;
  }
}
