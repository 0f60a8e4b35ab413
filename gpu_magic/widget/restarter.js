// `%gpus 1,3 --restart` has nothing to show: every page that the kernel has offers itself, and one is taken.
export default {
  initialize({ model }) {
    const me = newPage();
    model.on("msg:custom", (message) => {
      if (message.restart) answerRestart(message.restart, me, (answer) => model.send(answer));
    });
  },
};
