// The invisible widget of `%gpus 1,3 --restart`: every page of the kernel answers, and the kernel takes one.
export default {
  initialize({ model }) {
    const me = makeName();
    model.on("msg:custom", (message) => {
      if (message.type === "restart") answerRestart(message, me, (answer) => model.send(answer));
    });
  },
};
