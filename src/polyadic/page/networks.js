"use strict";
/* Tensor networks other than CP: plain functions on typed arrays, no DOM.

   parts : (N, K), the K numbers phi_n(x_n)' core_n of each column; each format contracts them as the
   class of the same name in polyadic.networks does. Letters as there: r or k the rank, L outputs. */

const networks = (() => {
  /* Move the left end through the matrices of all columns, to the right end. */
  function tt({ rank: r, outputs, extras: [left, right] }, parts) {
    let state = left;
    for (let at = 0; at < parts.length; at += r * r) {
      const next = new Float64Array(r);
      for (let a = 0; a < r; a++)
        for (let b = 0; b < r; b++) next[b] += state[a] * parts[at + a * r + b];
      state = next;
    }
    return timesMatrix(state, right, outputs);
  }

  /* Multiply the matrices around the ring, and take the trace. */
  function tr({ rank: r, outputs, extras }, parts) {
    let product = parts.subarray(0, r * r);
    for (let at = r * r; at < parts.length; at += r * r) {
      const next = new Float64Array(r * r);
      for (let a = 0; a < r; a++)
        for (let c = 0; c < r; c++)
          for (let b = 0; b < r; b++)
            next[a * r + b] += product[a * r + c] * parts[at + c * r + b];
      product = next;
    }
    const out = new Float64Array(outputs);
    for (let l = 0; l < outputs; l++)
      for (let a = 0; a < r; a++)
        if (!extras.length) out[l] += product[a * r + a];
        else
          for (let b = 0; b < r; b++) out[l] += product[a * r + b] * extras[0][(l * r + b) * r + a];
    return out;
  }

  /* Join neighbours level by level; a node without a partner moves up unchanged. */
  function ht({ rank: k, outputs, extras }, parts) {
    let nodes = [];
    for (let at = 0; at < parts.length; at += k) nodes.push(parts.subarray(at, at + k));
    for (const transfer of extras.slice(0, -1)) {
      const pairs = transfer.length / k ** 3;
      const joined = Array.from({ length: pairs }, (_, t) => {
        const out = new Float64Array(k);
        for (let a = 0; a < k; a++)
          for (let b = 0; b < k; b++) {
            const both = nodes[2 * t][a] * nodes[2 * t + 1][b];
            const first = ((t * k + a) * k + b) * k;
            for (let c = 0; c < k; c++) out[c] += transfer[first + c] * both;
          }
        return out;
      });
      nodes = [...joined, ...nodes.slice(2 * pairs)];
    }
    return timesMatrix(nodes[0], extras[extras.length - 1], outputs);
  }

  /* Multiply the core tensor by one part after another. */
  function tucker({ rank: k, extras }, parts) {
    let core = extras[0];
    for (let at = 0; at < parts.length; at += k) {
      const rest = core.length / k;
      const next = new Float64Array(rest);
      for (let a = 0; a < k; a++)
        for (let i = 0; i < rest; i++) next[i] += parts[at + a] * core[a * rest + i];
      core = next;
    }
    return core;
  }

  /* Add the linear part and, for each order, the recursion of the ANOVA kernel over the columns. */
  function fm({ rank: k, order, width, outputs, extras }, parts) {
    const out = new Float64Array(outputs);
    for (let at = 0; at < parts.length; at += width)
      for (let l = 0; l < outputs; l++) out[l] += parts[at + l];
    for (let t = 2; t <= order; t++)
      for (let j = 0; j < k; j++) {
        const sums = new Float64Array(order + 1);
        sums[0] = 1;
        for (let at = outputs + (t - 2) * k + j; at < parts.length; at += width)
          for (let s = t; s > 0; s--) sums[s] += parts[at] * sums[s - 1];
        for (let l = 0; l < outputs; l++)
          out[l] += sums[t] * extras[0][((t - 2) * k + j) * outputs + l];
      }
    return out;
  }

  /* Add up the columns within each form, and multiply the forms. */
  function pn({ rank: k, order, width, outputs, extras: [constants, weights] }, parts) {
    const forms = Float64Array.from(constants);
    for (let at = 0; at < parts.length; at += width)
      for (let i = 0; i < width; i++) forms[i] += parts[at + i];
    const product = new Float64Array(k).fill(1);
    for (let t = 0; t < order; t++) for (let j = 0; j < k; j++) product[j] *= forms[t * k + j];
    return timesMatrix(product, weights, outputs);
  }

  function timesMatrix(vector, matrix, outputs) {
    const out = new Float64Array(outputs);
    for (let a = 0; a < vector.length; a++)
      for (let l = 0; l < outputs; l++) out[l] += vector[a] * matrix[a * outputs + l];
    return out;
  }

  const FORMATS = { fm, ht, pn, tr, tt, tucker };

  /* The raw prediction at these parts. */
  function raw(model, parts) {
    const contracted = FORMATS[model.format](model, parts);
    return Float64Array.from(model.intercept, (b, l) => b + contracted[l]);
  }

  /* Exact Shapley values of one output, (N,): the change by the whole step in one part, integrated
     along the line from the mean parts to those of the row. */
  function shapley(model, output) {
    const { means, factors, width, nodes, node_weights: shares } = model;
    const N = model.columns.length;
    const out = new Float64Array(N);
    const here = new Float64Array(N * width);
    nodes.forEach((t, q) => {
      for (let i = 0; i < here.length; i++) here[i] = means[i] + t * (factors[i] - means[i]);
      const before = raw(model, here)[output];
      for (let n = 0; n < N; n++) {
        const own = here.slice(n * width, (n + 1) * width);
        for (let i = n * width; i < (n + 1) * width; i++) here[i] += factors[i] - means[i];
        out[n] += shares[q] * (raw(model, here)[output] - before);
        here.set(own, n * width);
      }
    });
    return out;
  }

  return { FORMATS, raw, shapley };
})();
