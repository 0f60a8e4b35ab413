// Shown by `%gpus 1,3 --restart`: nothing to see, the page only asks its server.
export default {
  render({ model }) {
    restartThroughServer(model.get("kernel"));
  },
};
