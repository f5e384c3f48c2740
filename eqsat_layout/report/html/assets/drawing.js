// From pictures to places: which cards there are, how large the browser draws their text, where dagre puts them.
// A card is a kernel; its rows are ops. Nothing here touches the page but the canvas that measures text.
'use strict';
const Drawing = (() => {
  const ROW = 38, PAD = 12, GAP = 14, BADGE = 16, LONGEST = 34, PART = 450, MOST_SPANS = 4000, LANE = 6;
  const ruler = document.createElement('canvas').getContext('2d');
  const FAMILY = 'system-ui, sans-serif';
  const widths = new Map();

  function width(text, font) {
    const key = font + text;
    if (!widths.has(key)) { ruler.font = font + ' ' + FAMILY; widths.set(key, Math.ceil(ruler.measureText(text).width) + 2); }
    return widths.get(key);
  }
  const short = (text, most = LONGEST) => (text.length <= most ? text : text.slice(0, most - 1) + '…');

  // What a row says: [left above, right above, left below, right below].
  function words(node, facts) {
    const [kind, op, layout, shape, cost] = facts[node[0]];
    const name = kind === 'transform' ? op : kind === 'op' ? op : kind + ' ' + node[1];
    const below = kind === 'op' && node[1] ? node[1] : shape;
    return [short(name), kind === 'transform' ? '' : short(layout, 28), short(below), cost];
  }
  function rowWidth([a, b, c, d]) {
    const above = width(a, '600 13px') + (b ? GAP + width(b, '600 12px') : 0);
    const below = width(c, '11px') + (d ? GAP + width(d, '11px') : 0);
    return Math.max(above, below, 90) + 2 * PAD;
  }

  // The part of a long program that each node lies in, so that dagre is never given thousands of cards at once.
  function parts(region) {
    const size = Math.max(region.before.nodes.length, region.after.nodes.length);
    if (size <= 2.5 * PART) { return 1; }
    return Math.ceil(region.before.nodes.length / PART);
  }
  function partOf(picture, isBefore) {
    let last = 0;
    return picture.nodes.map((node, i) => {
      if (isBefore) { return Math.floor(i / PART); }
      last = node[2] >= 0 ? Math.floor(node[2] / PART) : last;
      return last;
    });
  }

  // The cards of a picture: rows of one kernel together, of folded repeats the first time only.
  function cards(picture, facts, options) {
    const shown = picture.nodes.map((_, i) => i), times = new Map(), opened = new Set();
    picture.folds.forEach(([first, period, count], f) => {
      if (!options.fold) { return; }
      if (options.open.has(f)) { times.set(first, [count, f]); opened.add(f); return; }
      for (let i = first; i < first + period * count; i++) { shown[i] = first + (i - first) % period; }
      for (let i = first; i < first + period; i++) { times.set(i, [count, f]); }
    });
    const own = options.part < 0 ? null : partOf(picture, options.isBefore);
    const byKernel = new Map(), cardOf = new Map(), found = [];
    picture.nodes.forEach((node, i) => {
      if (shown[i] !== i || (own && own[i] !== options.part)) { return; }
      const key = node[3] >= 0 ? node[3] : 'n' + i;
      if (!byKernel.has(key)) { byKernel.set(key, found.length); found.push({ rows: [], times: times.get(i), open: times.has(i) && opened.has(times.get(i)[1]) }); }
      cardOf.set(i, byKernel.get(key));
      found[byKernel.get(key)].rows.push(i);
    });
    found.forEach((card) => {
      card.words = card.rows.map((i) => words(picture.nodes[i], facts));
      card.width = Math.max(...card.words.map(rowWidth));
      card.height = card.rows.length * ROW + 6 + (card.times ? BADGE : 0);
    });
    const edges = new Map();
    picture.edges.forEach(([source, target, bytes, weight]) => {
      const a = cardOf.get(shown[source]), b = shown[target] === target ? cardOf.get(target) : undefined;
      if (a === undefined || b === undefined || a === b) { return; }
      const key = a + ' ' + b, known = edges.get(key);
      if (!known || known.weight < weight) { edges.set(key, { a, b, bytes, weight }); }
    });
    return { cards: found, edges: [...edges.values()], cardOf, shown };
  }

  function place(made) {
    const graph = new dagre.graphlib.Graph({ multigraph: false });
    graph.setGraph({ rankdir: 'TB', nodesep: 22, edgesep: 14, ranksep: 26, marginx: 14, marginy: 10,
      ranker: made.cards.length > 300 ? 'tight-tree' : 'network-simplex' });
    graph.setDefaultEdgeLabel(() => ({}));
    made.cards.forEach((card, i) => graph.setNode(i, { width: card.width + 8, height: card.height + 6 }));
    const far = farEdges(made), laid = made.edges.filter((edge) => !far.has(edge));
    laid.forEach((edge) => graph.setEdge(edge.a, edge.b,
      { width: width(edge.bytes, '11px') + 6, height: 14, labelpos: 'c', weight: 1 }));
    dagre.layout(graph);
    made.cards.forEach((card, i) => { const at = graph.node(i); card.x = at.x; card.y = at.y; });
    laid.forEach((edge) => {
      const at = graph.edge(edge.a, edge.b);
      edge.points = at.points.map((p) => ({ x: p.x, y: p.y }));
      edge.label = { x: at.x, y: at.y };
    });
    const size = graph.graph();
    made.width = made.cards.length ? size.width : 200;
    made.height = made.cards.length ? size.height : 40;
    route(made, [...far]);
    return made;
  }

  // Edges that dagre needs not know, as others lead there too, where the rows that all of them cross are so many that it
  // would take seconds: each layer of a DenseNet reads all layers before it.
  function farEdges(made) {
    const out = made.cards.map(() => []), waits = made.cards.map(() => 0), rank = made.cards.map(() => 0), order = [];
    made.edges.forEach(({ a, b }) => { out[a].push(b); waits[b]++; });
    waits.forEach((count, i) => { if (!count) { order.push(i); } });
    for (let k = 0; k < order.length; k++) {
      out[order[k]].forEach((b) => { rank[b] = Math.max(rank[b], rank[order[k]] + 1); if (!--waits[b]) { order.push(b); } });
    }
    const span = (edge) => rank[edge.b] - rank[edge.a];
    if (made.edges.reduce((sum, edge) => sum + span(edge), 0) <= MOST_SPANS) { return new Set(); }
    const below = made.cards.map(() => new Set());
    order.reverse().forEach((i) => out[i].forEach((b) => { below[i].add(b); below[b].forEach((c) => below[i].add(c)); }));
    return new Set(made.edges.filter((edge) => out[edge.a].some((c) => c !== edge.b && below[c].has(edge.b))));
  }

  // Far edges run on the right of all cards, those of one source in one lane.
  function route(made, far) {
    const lanes = [], bySource = new Map();
    far.forEach((edge) => bySource.set(edge.a, [...(bySource.get(edge.a) || []), edge]));
    const top = (a) => made.cards[a].y + made.cards[a].height / 2;
    [...bySource].sort((p, q) => top(p[0]) - top(q[0])).forEach(([a, edges]) => {
      const free = lanes.findIndex((end) => end < top(a)), lane = free < 0 ? lanes.length : free, x = made.width + LANE * lane;
      edges.forEach((edge) => {
        const source = made.cards[a], target = made.cards[edge.b], end = target.y - target.height / 2;
        edge.points = [{ x: source.x, y: top(a) }, { x, y: top(a) + LANE }, { x, y: end - LANE }, { x: target.x, y: end }];
        lanes[lane] = Math.max(lanes[lane] || 0, end);
      });
    });
    made.width += LANE * lanes.length;
  }

  // Stretches both drawings so that ops with the same binding stand beside each other, as far as they come in one order.
  // Distances only grow, so what did not overlap still does not.
  function align(left, right, pictures) {
    const where = new Map();
    right.cardOf.forEach((card, i) => {
      const binding = pictures[1].nodes[i][2];
      if (binding >= 0 && !where.has(binding)) { where.set(binding, right.cards[card].y); }
    });
    const pairs = [];
    left.cardOf.forEach((card, i) => {
      const binding = pictures[0].nodes[i][2];
      if (where.has(binding)) { pairs.push([left.cards[card].y, where.get(binding)]); }
    });
    const chain = longestChain(pairs);
    const stops = [[0, 0, 0]];
    chain.forEach(([a, b]) => {
      const [a0, b0, y0] = stops[stops.length - 1];
      stops.push([a, b, y0 + Math.max(a - a0, b - b0)]);
    });
    const [a1, b1, y1] = stops[stops.length - 1];
    stretch(left, stops, 0);
    stretch(right, stops, 1);
    const height = y1 + Math.max(left.height - a1, right.height - b1);
    left.height = right.height = height;
  }
  function longestChain(pairs) { // rising in both, the most pairs (patience sorting)
    pairs.sort((p, q) => p[0] - q[0] || q[1] - p[1]);
    const tails = [], before = [];
    pairs.forEach((pair, i) => {
      let low = 0, high = tails.length;
      while (low < high) { const m = (low + high) >> 1; if (pairs[tails[m]][1] < pair[1]) { low = m + 1; } else { high = m; } }
      before[i] = low ? tails[low - 1] : -1;
      tails[low] = i;
    });
    const chain = [];
    for (let i = tails.length ? tails[tails.length - 1] : -1; i >= 0; i = before[i]) { chain.push(pairs[i]); }
    return chain.reverse().filter((p, i, all) => !i || p[0] > all[i - 1][0]);
  }
  function stretch(made, stops, side) {
    const moved = (y) => {
      let k = stops.length - 1;
      while (k > 0 && stops[k][side] > y) { k--; }
      const [from, y0] = [stops[k][side], stops[k][2]];
      if (k + 1 === stops.length || stops[k + 1][side] === from) { return y0 + y - from; }
      return y0 + (y - from) * (stops[k + 1][2] - y0) / (stops[k + 1][side] - from);
    };
    made.cards.forEach((card) => { card.y = moved(card.y); });
    made.edges.forEach((edge) => {
      edge.points.forEach((p) => { p.y = moved(p.y); });
      if (edge.label) { edge.label.y = moved(edge.label.y); }
      const source = made.cards[edge.a], target = made.cards[edge.b];
      edge.points[0].y = source.y + source.height / 2;
      edge.points[edge.points.length - 1].y = target.y - target.height / 2;
    });
  }
  return { ROW, PAD, BADGE, PART, width, cards, place, align, parts };
})();
