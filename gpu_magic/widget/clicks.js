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
  }

  // A request; "": no device so far; null: nothing was clicked.
  get draft() {
    return this.waiting.reduce((request, { change }) => change(request), this.known);
  }

  add(change) {
    this.waiting.push({ number: ++this.latest, change });
    this.answerTime = ANSWER_TIME;
    this.say();
  }

  say() {
    this.saidAt = Date.now();
    this.send(pageMessage.setDraft(this.draft, this.page, this.latest, this.number));
  }

  // Repeats the clicks if the kernel, which has just sent something, says nothing of them: messages get lost.
  remind() {
    if (!this.waiting.length || Date.now() - this.saidAt < this.answerTime) return;
    this.answerTime *= 2;
    this.say();
  }

  // From here on they are part of a choice.
  choose() {
    this.chosen = this.latest;
  }

  // A choice was made: its clicks are a part of what the kernel has.
  settle() {
    this.confirm(this.chosen);
  }

  drop() {
    this.waiting = [];
  }

  // Takes the draft of a state, and repeats the clicks that it does not have. The state can have been sent before
  // the kernel heard of them; but they can be lost, too.
  reset(draft) {
    this.take(draft);
    if (this.waiting.length) this.say();
  }

  // Takes a draft from the kernel, with the number of each page's latest click that it has; returns whether it is
  // another one than before.
  take({ request, number, clicks }) {
    this.confirm(clicks[this.page] ?? 0);
    const isNew = request !== this.known;
    this.known = request;
    this.number = number;
    return isNew;
  }

  confirm(click) {
    this.waiting = this.waiting.filter(({ number }) => number > click);
  }

  // Takes the draft on which the clicks are to be repeated; not those that a choice has followed.
  repeat(draft) {
    const isNew = this.take(draft);
    this.confirm(this.chosen);
    if (this.waiting.length) this.say();
    return isNew;
  }
}

// Milliseconds after which a click without an answer is repeated; then after twice as many, and so on.
const ANSWER_TIME = 3000;
