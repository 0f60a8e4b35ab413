// Histories as the kernel keeps them: an item each second; null: not known, or nothing was read then.

// Returns what takes a history from one second to a later one, or changes the latest sample where they are the same.
// Of seconds in which nothing was sent, those since `unbroken` had the value of before; in others nothing was read.
function sampler(from, { second, unbroken }) {
  return (samples, before, now) => {
    if (second === from) samples.pop();
    for (let passed = Math.max(from + 1, second - SAMPLES); passed < second; passed++) {
      samples.push(passed < unbroken ? null : before);
    }
    samples.push(now);
    samples.splice(0, samples.length - SAMPLES);
  };
}

// What the charts show: null where the utilization is not known, or there is none; memory in thousandths.
function knownUtilization(figures) {
  const { utilization } = unpackFigures(figures);
  return typeof utilization === "number" ? utilization : null;
}

function knownMemory(figures) {
  const { used, usedShare } = unpackFigures(figures);
  return used === null ? null : usedShare;
}
