"use strict";
/* The trees of a model: every leaf is a product of conditions on the bins of a few columns.

   Bin 0 holds missing values; a condition is an interval of bins or, where `high` is 0, a set. */

const leaves = (() => {
  const hasBit = (set, k) => ((set[k >> 3] >> (k & 7)) & 1) === 1;

  /* Prepare decoded trees: first condition of each leaf, the mean of every condition. */
  function open(trees, outputs, relative) {
    trees.relative = relative;
    trees.outputs = outputs;
    const count = trees.lengths.length;
    trees.first = new Int32Array(count + 1);
    for (let r = 0; r < count; r++) trees.first[r + 1] = trees.first[r] + trees.lengths[r];
    trees.row = new Int32Array(trees.bins.length); // the bin of each column of the current row
    let next = 0;
    trees.share = Float64Array.from(trees.missing, (m) => (m === 2 ? trees.both_ways[next++] : m));
    trees.means = Float64Array.from(trees.column, (_, p) => mean(trees, p));
    const longest = Math.max(0, ...new Set(trees.lengths));
    trees.scratch = Array.from({ length: 4 }, () => new Float64Array(longest + 1));
    trees.base = total(trees, outputs, (p) => trees.means[p]);
    return trees;
  }

  /* Whether a bin meets condition p; not for missing values. */
  function meets(trees, p, bin) {
    if (trees.high[p] === 0) return hasBit(trees.sets[trees.low[p]], bin);
    return trees.low[p] <= bin && bin <= trees.high[p];
  }

  /* 1 if the current row meets condition p, 0 if not; of a missing value, perhaps a share. */
  function factor(trees, p) {
    const bin = trees.row[trees.column[p]];
    if (bin === 0) return trees.share[p];
    return meets(trees, p, bin) ? 1 : 0;
  }

  /* The share of the rows that meet condition p. */
  function mean(trees, p) {
    const { shares } = trees.bins[trees.column[p]];
    let sum = trees.share[p] * shares[0];
    for (let k = 1; k < shares.length; k++) if (meets(trees, p, k)) sum += shares[k];
    return sum;
  }

  /* Set column n of the current row; a category is given by its position, -1 for none. */
  function set(trees, n, x) {
    const { edges, places } = trees.bins[n];
    if (edges === null) trees.row[n] = x >= 0 ? places[x] : 0;
    else if (Number.isNaN(x)) trees.row[n] = 0;
    else {
      let low = 0;
      for (let high = edges.length; low < high; ) {
        const middle = (low + high) >> 1;
        if (edges[middle] < x) low = middle + 1;
        else high = middle;
      }
      trees.row[n] = 1 + low;
    }
  }

  /* The value of leaf r for one output; relative to the mean over all of them, where asked for. */
  function valueOf(trees, r, output) {
    const { width, values, outputs } = trees;
    const w = output - trees.output[r];
    const own = w >= 0 && w < width ? values[r * width + w] : 0;
    if (!trees.relative) return own;
    let sum = 0;
    for (let k = 0; k < width; k++) sum += values[r * width + k];
    return own - sum / outputs;
  }

  /* The sum over leaves of value times the product of each(p) over its conditions p. */
  function total(trees, outputs, each) {
    const out = new Float64Array(outputs);
    const { first, width, values, output } = trees;
    for (let r = 0; r + 1 < first.length; r++) {
      let product = 1;
      for (let p = first[r]; p < first[r + 1] && product !== 0; p++) product *= each(p);
      if (product !== 0)
        for (let w = 0; w < width; w++) out[output[r] + w] += values[r * width + w] * product;
    }
    if (!trees.relative) return out;
    const mean = out.reduce((a, b) => a + b, 0) / outputs;
    return out.map((value) => value - mean);
  }

  /* What the trees add to the raw prediction of the row, for each output. */
  function raw(trees, outputs) {
    return total(trees, outputs, (p) => factor(trees, p));
  }

  /* Add the Shapley values of one output to out : (N,), as in engine.js, along each path. */
  function addShapley(trees, output, out) {
    const { first, column, means, rules } = trees;
    const [step, now, prefix, share] = trees.scratch;
    prefix[0] = 1;
    for (let r = 0; r + 1 < first.length; r++) {
      const value = valueOf(trees, r, output);
      const depth = first[r + 1] - first[r];
      if (value === 0 || depth === 0) continue;
      for (let i = 0; i < depth; i++) {
        const p = first[r] + i;
        step[i] = factor(trees, p) - means[p];
        share[i] = 0;
      }
      const { nodes, weights } = rules[depth];
      for (let q = 0; q < nodes.length; q++) {
        for (let i = 0; i < depth; i++) {
          now[i] = means[first[r] + i] + nodes[q] * step[i];
          prefix[i + 1] = prefix[i] * now[i];
        }
        let suffix = weights[q];
        for (let i = depth - 1; i >= 0; i--) {
          share[i] += prefix[i] * suffix;
          suffix *= now[i];
        }
      }
      for (let i = 0; i < depth; i++) out[column[first[r] + i]] += value * step[i] * share[i];
    }
  }

  return { addShapley, open, raw, set };
})();
