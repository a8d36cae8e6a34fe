"use strict";
/* The model in the page: plain functions on typed arrays, no DOM.

   Letters as in the package: N columns, R terms, L outputs.
     f(x)_l = b_l + sum_n u_nl(x_n) + sum_r C_rl prod_n g_nr(x_n)
   A model of another format than CP is contracted by networks.js, from the same maps.
   A column's value is a number, NaN where it is missing; for categories it is the position among
   those that the page offers, -1 where it is missing. */

const engine = (() => {
  const TYPES = {
    f4: Float32Array,
    f8: Float64Array,
    i4: Int32Array,
    u1: Uint8Array,
    u2: Uint16Array,
  };
  const LARGEST = 1e30; // of a polynomial's element, as in polyadic.maps.polynomial

  function decodeArray(array) {
    const text = atob(array.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new TYPES[array.type](bytes.buffer);
  }

  const isArray = (v) => v !== null && typeof v === "object" && "data" in v && "type" in v;

  /* Turn every encoded array inside plain JSON values into a typed array. */
  function decode(value) {
    if (isArray(value)) return decodeArray(value);
    if (Array.isArray(value)) return value.map(decode);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, own]) => [key, decode(own)]));
  }

  // ---- maps: each writes the slots of x, and returns their number ---------------------------------

  const clip = (x, low, high) => Math.min(Math.max(x, low), high);

  /* Map x from its range to -1..1, clipped at the ends. */
  function toRange(x, [low, high]) {
    const middle = 0.5 * low + 0.5 * high;
    const half = 0.5 * high - 0.5 * low;
    return clip((clip(x, low, high) - middle) / (half > 0 ? half : 1), -1, 1);
  }

  function hat(map, x, index, value) {
    if (Number.isNaN(x)) return 0;
    const knots = map.knots_;
    const last = knots.length - 1;
    let lower = 0;
    for (let high = Math.max(last, 1); high - lower > 1;) {
      const middle = (lower + high) >> 1;
      if (knots[middle] <= x) lower = middle;
      else high = middle;
    }
    const upper = Math.min(lower + 1, last);
    const width = 0.5 * knots[upper] - 0.5 * knots[lower];
    const t = width > 0 ? clip((0.5 * x - 0.5 * knots[lower]) / width, 0, 1) : 0;
    index[0] = 1 + lower;
    index[1] = 1 + upper;
    value[0] = 1 - t;
    value[1] = t;
    return 2;
  }

  function onehot(map, x, index, value) {
    if (!(x >= 0)) return 0;
    index[0] = 1 + x;
    value[0] = 1;
    return 1;
  }

  function step(map, x, index, value) {
    if (Number.isNaN(x)) return 0;
    index[0] = 1 + map.edges_.reduce((below, edge) => below + (edge < x), 0);
    value[0] = 1;
    return 1;
  }

  function polynomial(map, x, index, value) {
    const missing = Number.isNaN(x);
    const z = missing ? 0 : (x - map.mean_) / map.std_;
    return map.normalize ? unitPowers(map, z, index, value) : powers(map, z, missing, index, value);
  }

  function powers(map, z, missing, index, value) {
    if (missing) return 0;
    const limit = LARGEST ** (1 / Math.max(map.d - 1, 1));
    const held = clip(z, -limit, limit);
    let power = 1;
    for (let k = 0; k < map.d - 1; k++) {
      power *= held;
      index[k] = 1 + k;
      value[k] = map.standardize
        ? clip((power - map.element_mean_[k]) / map.element_std_[k], -LARGEST, LARGEST)
        : power;
    }
    return map.d - 1;
  }

  /* Beyond |z| = 1 the largest power is divided out first, so that nothing overflows. */
  function unitPowers(map, z, index, value) {
    const d = map.d;
    const outside = Math.abs(z) > 1;
    const ratio = outside ? 1 / z : z;
    let total = 0;
    for (let k = 0, term = 1; k < d; k++, term *= ratio * ratio) total += term;
    let power = 1 / Math.sqrt(total);
    if (outside && z < 0 && d % 2 === 0) power = -power;
    for (let k = 0; k < d; k++, power *= ratio) {
      index[k] = k;
      value[outside ? d - 1 - k : k] = power;
    }
    return d;
  }

  /* The Cox-de Boor recursion, one degree per round. */
  function bspline(map, x, index, value) {
    if (Number.isNaN(x)) return 0;
    const { degree, breaks_: breaks } = map;
    const knot = (k) => breaks[clip(k - degree, 0, breaks.length - 1)]; // clamped at both ends
    const u = toRange(x, map.range_);
    let span = degree;
    while (span < breaks.length + degree - 2 && knot(span + 1) <= u) span++;
    const left = new Float64Array(degree + 1);
    const right = new Float64Array(degree + 1);
    value[0] = 1;
    for (let j = 1; j <= degree; j++) {
      left[j] = u - knot(span + 1 - j);
      right[j] = knot(span + j) - u;
      let carried = 0;
      for (let r = 0; r < j; r++) {
        const part = value[r] / (right[r + 1] + left[j - r]);
        value[r] = carried + right[r + 1] * part;
        carried = left[j - r] * part;
      }
      value[j] = carried;
    }
    for (let j = 0; j <= degree; j++) index[j] = 1 + span - degree + j;
    return degree + 1;
  }

  function chebyshev(map, x, index, value) {
    if (Number.isNaN(x)) return 0;
    const u = toRange(x, map.range_);
    let before = 1;
    let now = u;
    for (let k = 0; k < map.d - 1; k++) {
      index[k] = 1 + k;
      value[k] = now;
      [before, now] = [now, 2 * u * now - before];
    }
    return map.d - 1;
  }

  function fourier(map, x, index, value) {
    if (Number.isNaN(x)) return 0;
    const u = toRange(x, map.range_);
    for (let k = 0; k < map.n_frequencies; k++) {
      index[2 * k] = 1 + 2 * k;
      index[2 * k + 1] = 2 + 2 * k;
      value[2 * k] = Math.cos((k + 1) * Math.PI * u);
      value[2 * k + 1] = Math.sin((k + 1) * Math.PI * u);
    }
    return 2 * map.n_frequencies;
  }

  function trigonometric(map, x, index, value) {
    const angle = Number.isNaN(x) ? 0 : 0.25 * Math.PI * (toRange(x, map.range_) + 1);
    index[0] = 0;
    index[1] = 1;
    value[0] = Math.cos(angle);
    value[1] = Math.sin(angle);
    return 2;
  }

  /* The elements of a missing value, where the column had none in training: their means. */
  function missing(map, index, value) {
    const first = map.constant ? 1 : 0;
    map.missing_.forEach((mean, k) => {
      index[k] = first + k;
      value[k] = mean;
    });
    return map.missing_.length;
  }

  const MAPS = { bspline, chebyshev, fourier, hat, onehot, polynomial, step, trigonometric };

  // ---- the model --------------------------------------------------------------------------------

  /* Write <phi(x), core> for the terms of a column's parts, to out[offset + stride * k]. */
  function contract(parts, x, scratch, out, offset, stride) {
    const { index, value } = scratch;
    let at = offset;
    for (const { map, terms, core } of parts) {
      const slots =
        Number.isNaN(x) && map.missing_
          ? missing(map, index, value)
          : MAPS[map.name](map, x, index, value);
      for (let k = 0; k < terms; k++) {
        let sum = map.constant ? core[k] : 0;
        for (let s = 0; s < slots; s++) sum += value[s] * core[index[s] * terms + k];
        out[at] = sum;
        at += stride;
      }
    }
  }

  /* Prepare a model: decode its arrays, and allocate those of the current row. */
  function open(payload, relative) {
    const model = decode(payload);
    const N = model.columns.length;
    const widest = Math.max(
      8,
      ...model.columns.flatMap((c) => c.parts.map((part) => part.core.length / part.terms)),
    );
    model.scratch = { index: new Int32Array(widest), value: new Float64Array(widest) };
    if (model.format) {
      model.factors = new Float64Array(N * model.width); // the parts of the columns: see networks.js
      return model;
    }
    model.factors = new Float64Array(model.rank * N); // g_nr, the columns of a term together
    model.additive = new Float64Array(N * model.outputs);
    model.term_means = new Float64Array(model.rank * N);
    for (let n = 0; n < N; n++)
      for (let r = 0; r < model.rank; r++)
        model.term_means[r * N + n] = model.means[n * model.rank + r];
    if (model.trees) leaves.open(model.trees, model.outputs, relative);
    return model;
  }

  /* Set column n of the current row. */
  function set(model, n, x) {
    const column = model.columns[n];
    if (model.format) {
      contract(column.parts, x, model.scratch, model.factors, n * model.width, 1);
      return;
    }
    contract(column.parts, x, model.scratch, model.factors, n, model.columns.length);
    contract(column.additive, x, model.scratch, model.additive, n * model.outputs, 1);
    if (model.trees) leaves.set(model.trees, n, x);
  }

  /* The raw prediction of the row, one number for each output. */
  function raw(model) {
    if (model.format) return networks.raw(model, model.factors);
    const trees = model.trees ? leaves.raw(model.trees, model.outputs) : null;
    return total(model, model.factors, model.additive, trees);
  }

  /* The mean of the raw prediction over independent columns, which Shapley values are added to. */
  function base(model) {
    if (model.format) return networks.raw(model, model.means);
    return total(model, model.term_means, model.additive_means, model.trees && model.trees.base);
  }

  function total(model, factors, additive, trees) {
    const { rank, outputs, weights } = model;
    const N = model.columns.length;
    const out = Float64Array.from(model.intercept, (b, l) => b + (trees ? trees[l] : 0));
    for (let i = 0; i < additive.length; i++) out[i % outputs] += additive[i];
    for (let r = 0; r < rank; r++) {
      let product = 1;
      for (let n = 0; n < N; n++) product *= factors[r * N + n];
      for (let l = 0; l < outputs; l++) out[l] += weights[r * outputs + l] * product;
    }
    return out;
  }

  /* Exact Shapley values of the row for one output, (N,).

     phi_n = u_n - E u_n + sum_r C_r (g_nr - mu_nr) int_0^1 prod_{m != n} (mu_mr + t (g_mr - mu_mr)) dt
     A polynomial in t of degree N - 1: ceil(N / 2) Gauss-Legendre nodes leave no error. Products
     of all columns but one come from prefixes and suffixes: a division could be by zero. */
  function shapley(model, output) {
    if (model.format) return networks.shapley(model, output);
    const { rank, outputs, weights, factors, nodes, node_weights: shares } = model;
    const mu = model.term_means;
    const N = model.columns.length;
    const out = new Float64Array(N);
    const step = new Float64Array(N);
    const prefix = new Float64Array(N + 1);
    const share = new Float64Array(N);
    prefix[0] = 1;
    for (let r = 0; r < rank; r++) {
      const first = r * N;
      const weight = weights[r * outputs + output];
      for (let n = 0; n < N; n++) step[n] = factors[first + n] - mu[first + n];
      share.fill(0);
      for (let q = 0; q < nodes.length; q++) {
        const t = nodes[q];
        for (let n = 0; n < N; n++) prefix[n + 1] = prefix[n] * (mu[first + n] + t * step[n]);
        let suffix = shares[q];
        for (let n = N - 1; n >= 0; n--) {
          share[n] += prefix[n] * suffix;
          suffix *= mu[first + n] + t * step[n];
        }
      }
      for (let n = 0; n < N; n++) out[n] += weight * step[n] * share[n];
    }
    for (let n = 0; n < model.additive_means.length / outputs; n++)
      out[n] += model.additive[n * outputs + output] - model.additive_means[n * outputs + output];
    if (model.trees) leaves.addShapley(model.trees, output, out);
    return out;
  }

  // ---- the scale of probabilities ---------------------------------------------------------------

  function logSoftmax(scores) {
    const most = Math.max(...scores);
    const size = Math.log(scores.reduce((sum, s) => sum + Math.exp(s - most), 0));
    return scores.map((s) => s - most - size);
  }

  /* (e^x - e^y) / (x - y) */
  function logarithmicMean(x, y) {
    const apart = Math.abs(x - y);
    return Math.exp(Math.max(x, y)) * (apart > 0 ? -Math.expm1(-apart) / apart : 1);
  }

  /* The Shapley values of one output divided anew, so that they add up to the probability: the rule
     of polyadic.explain.scales. Two classes are scores of 0 and raw. */
  function steps(model, output, base, raw) {
    const two = model.outputs === 1;
    const scores = (all) => logSoftmax(two ? [0, all[0]] : Array.from(all));
    const [before, after] = [scores(base), scores(raw)];
    const mean = before.map((x, k) => logarithmicMean(x, after[k]));
    const whole = mean.reduce((a, b) => a + b, 0);
    const own = shapley(model, output);
    if (two) return own.map((phi) => (mean[1] * (1 - mean[1] / whole)) * phi);
    const average = new Float64Array(own.length);
    mean.forEach((m, j) => shapley(model, j).forEach((phi, n) => (average[n] += (m / whole) * phi)));
    return own.map((phi, n) => mean[output] * (phi - average[n]));
  }

  // ---- links: from raw to what is predicted -----------------------------------------------------

  const half = (raw) => clip((raw + 1) / 2, 1e-6, 1 - 1e-6);

  function normalised(shares) {
    const sum = shares.reduce((a, b) => a + b, 0);
    return shares.map((share) => share / sum);
  }

  /* exp does not overflow for either sign, and a probability near zero keeps its digits. */
  function sigmoids(raw) {
    const tail = Math.exp(-Math.abs(raw));
    const [small, large] = [tail / (1 + tail), 1 / (1 + tail)];
    return raw >= 0 ? [small, large] : [large, small];
  }

  const LINKS = {
    identity: (raw) => Array.from(raw),
    exp: (raw) => Array.from(raw, (f) => Math.exp(Math.min(f, 700))),
    logistic: (raw) => sigmoids(raw[0]),
    softmax: (raw) => {
      const most = Math.max(...raw);
      return normalised(Array.from(raw, (f) => Math.exp(f - most)));
    },
    labels: (raw) => {
      const shares = Array.from(raw, half);
      return normalised(shares.length > 1 ? shares : [1 - shares[0], shares[0]]);
    },
  };

  return { LINKS, base, decode, open, raw, set, shapley, steps };
})();
