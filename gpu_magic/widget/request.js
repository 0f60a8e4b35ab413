// A request: what one types after `%gpus`, devices and then options, `2,6 --growth --memory-limit 8GB`.
const LIMIT = /^\d+(\.\d+)?([KMGT]i?)?B?$/i;

function splitRequest(request) {
  const [, devices, growth, limit] = /^(.*?)( --growth)?(?: --memory-limit (.*))?$/.exec(request);
  return { devices, growth: Boolean(growth), limit: limit ?? "" };
}

function joinRequest({ devices, growth, limit }) {
  return `${devices}${growth ? " --growth" : ""}${limit ? ` --memory-limit ${limit}` : ""}`;
}

const devicesOf = (request) => splitRequest(request).devices;
