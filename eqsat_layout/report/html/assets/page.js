// The page: draws the regions, and answers clicks, keys, the search and the tools.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const facts = data.facts, main = document.getElementById('drawings'), details = document.getElementById('details');
  const KIND = 0, OP = 1, LAYOUT = 2, SHAPE = 3, COST = 4, CONSTANTS = 5, OPERANDS = 6, WHY = 7, RULES = 8, WAYS = 9;
  const narrow = matchMedia('(max-width: 800px)');
  const state = { zoom: 1, fold: true, chosen: null, side: narrow.matches ? 'after' : 'both' };
  const regions = data.regions.map((region) => ({ ...region, part: 0, parts: Drawing.parts(region), made: {},
    open: { before: new Set(), after: new Set() } }));
  const fact = (region, side, i) => facts[region[side].nodes[i][0]];
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }[c]));
  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...children);
    return made;
  }

  // ---- what changed ----
  regions.forEach((region) => {
    region.twins = { before: new Map(), after: new Map() };
    ['before', 'after'].forEach((side) => region[side].nodes.forEach((node, i) => {
      if (node[2] >= 0 && fact(region, side, i)[KIND] !== 'transform') { region.twins[side].set(node[2], i); }
    }));
    const differs = (side, i) => {
      const other = side === 'before' ? 'after' : 'before', own = fact(region, side, i);
      if (own[KIND] === 'parameter' || own[KIND] === 'result') { return false; }
      if (own[KIND] === 'transform') { return true; }
      const found = region.twins[other].get(region[side].nodes[i][2]), theirs = found !== undefined && fact(region, other, found);
      return !theirs || theirs[OP] !== own[OP] || theirs[LAYOUT] !== own[LAYOUT] || String(theirs[OPERANDS]) !== String(own[OPERANDS]);
    };
    region.changed = { before: region.before.nodes.map((_, i) => differs('before', i)),
      after: region.after.nodes.map((_, i) => differs('after', i)) };
  });
  const twin = (region, side, i) => {
    const other = side === 'before' ? 'after' : 'before', found = region.twins[other].get(region[side].nodes[i][2]);
    return found === undefined ? null : [other, found];
  };

  // ---- drawing ----
  function rowOf(region, r, side, i, words, y, width) {
    const [above, layout, below, cost] = words, own = fact(region, side, i), changed = region.changed[side][i];
    const kind = own[KIND] === 'transform' ? 'move' : 'c' + (data.colours[own[LAYOUT]] || 0);
    const label = [own[KIND] === 'op' ? own[OP] : own[KIND] + ' ' + own[OP], region[side].nodes[i][1],
      own[LAYOUT] && 'layout ' + own[LAYOUT], own[SHAPE], own[COST], changed && 'changed', side].filter(Boolean).join(', ');
    const text = (cls, x, dy, words_) => words_ ? `<text class="${cls}" x="${x}" y="${y + dy}">${escaped(words_)}</text>` : '';
    const right = (font, words_) => width - Drawing.PAD - Drawing.width(words_, font);
    return `<g class="row ${own[KIND]} ${kind}${changed ? ' changed' : ''}" role="button" tabindex="-1" aria-pressed="false"` +
      ` data-r="${r}" data-side="${side}" data-i="${i}" aria-label="${escaped(label)}">` +
      `<rect class="hit" x="3" y="${y}" width="${width - 6}" height="${Drawing.ROW}" rx="4"/>` +
      `<rect class="stripe" x="3" y="${y + 3}" width="4" height="${Drawing.ROW - 6}" rx="2"/>` +
      text('op', Drawing.PAD, 16, above) + text('layout', right('600 12px', layout), 16, layout) +
      text('small', Drawing.PAD, 31, below) + text('small', right('11px', cost), 31, cost) + '</g>';
  }
  function cardOf(region, r, side, card) {
    const left = card.x - card.width / 2, top = card.y - card.height / 2, shift = card.times ? Drawing.BADGE : 0;
    const stack = card.times && !card.open ? `<rect class="stack" x="4" y="4" width="${card.width}" height="${card.height}" rx="7"/>` : '';
    const text = card.open ? '−' : card.times ? '×' + card.times[0] : '', room = Drawing.width(text, '600 11px') + 10;
    const hint = card.open ? 'fold the repeats again' : card.times && `${card.times[0]} times the same: unfold`;
    const badge = card.times ? `<g class="badge" role="button" tabindex="0" aria-label="${hint}" data-r="${r}" data-side="${side}"` +
      ` data-fold="${card.times[1]}"><title>${hint}</title>` +
      `<rect x="${card.width - room - 4}" y="4" width="${room}" height="14" rx="7"/>` +
      `<text class="times" x="${card.width - room + 1}" y="15">${text}</text></g>` : '';
    const rows = card.rows.map((i, k) => rowOf(region, r, side, i, card.words[k], 3 + shift + k * Drawing.ROW, card.width));
    return `<g class="card" transform="translate(${left},${top})">${stack}<rect class="frame${card.rows.length > 1 ? ' many' : ''}"` +
      ` width="${card.width}" height="${card.height}" rx="7"/>${badge}${rows.join('')}</g>`;
  }
  function pathOf(edge) {
    const line = edge.points.map((p, k) => (k ? 'L' : 'M') + p.x.toFixed(1) + ' ' + p.y.toFixed(1)).join('');
    return `<path class="edge${edge.label ? '' : ' far'}" d="${line}" stroke-width="${edge.weight}"/>`;
  }
  function svgOf(region, r, side) {
    const made = region.made[side], title = `${side === 'before' ? 'Before' : 'After'}: ${region.title}`;
    const labels = made.edges.filter((e) => e.label).map((e) => `<text class="bytes" x="${e.label.x - Drawing.width(e.bytes, '11px') / 2}"` +
      ` y="${e.label.y + 4}">${escaped(e.bytes)}</text>`);
    return `<svg role="group" aria-label="${escaped(title)}" width="${made.width * state.zoom}" height="${made.height * state.zoom}"` +
      ` viewBox="0 0 ${made.width} ${made.height}">${made.edges.map(pathOf).join('')}${labels.join('')}` +
      made.cards.map((card) => cardOf(region, r, side, card)).join('') + '</svg>';
  }
  function draw(r) {
    const region = regions[r], home = document.getElementById('region' + r);
    ['before', 'after'].forEach((side) => {
      const options = { fold: state.fold, open: region.open[side], isBefore: side === 'before', part: region.parts > 1 ? region.part : -1 };
      region.made[side] = Drawing.place(Drawing.cards(region[side], facts, options));
    });
    Drawing.align(region.made.before, region.made.after, [region.before, region.after]);
    ['before', 'after'].forEach((side) => {
      const column = home.querySelector('.' + side);
      column.innerHTML = `<h3>${side === 'before' ? 'Before' : 'After'}</h3>` + svgOf(region, r, side);
      const first = column.querySelector('.row');
      if (first) { first.setAttribute('tabindex', '0'); }
    });
    const label = home.querySelector('.part');
    if (label) { label.textContent = `part ${region.part + 1} of ${region.parts}`; }
    mark();
  }
  function drawAll() { regions.forEach((_, r) => draw(r)); }
  function fit() { // as large as it can be without a bar below, but not so small that it is hard to read
    const room = main.querySelector('.column.after').clientWidth - 10 || main.clientWidth;
    const widest = Math.max(...regions.map((region) => Math.max(region.made.before.width, region.made.after.width)));
    resize(Math.min(1, Math.max(0.7, room / widest)));
    main.querySelectorAll('.column').forEach((column) => { // what is wider begins where the program does
      const svg = column.querySelector('svg'), first = regions[+column.closest('section').id.slice(6)].made[column.classList[1]].cards[0];
      if (svg && first) { column.scrollLeft = first.x * state.zoom - column.clientWidth / 2; }
    });
  }
  function resize(zoom) {
    state.zoom = zoom;
    regions.forEach((region, r) => ['before', 'after'].forEach((side) => {
      const svg = document.querySelector(`#region${r} .${side} svg`);
      svg.setAttribute('width', region.made[side].width * zoom);
      svg.setAttribute('height', region.made[side].height * zoom);
    }));
  }
  regions.forEach((region, r) => {
    const home = element('section', { id: 'region' + r, 'aria-label': region.title });
    const head = element(regions.length > 1 ? 'h2' : 'div', {}, regions.length > 1 ? region.title + ' ' : '');
    if (region.parts > 1) {
      const turn = (by) => { region.part = Math.min(region.parts - 1, Math.max(0, region.part + by)); draw(r); };
      const back = element('button', { type: 'button', 'aria-label': 'Earlier part' }, '‹'), on = element('button', { type: 'button', 'aria-label': 'Later part' }, '›');
      back.addEventListener('click', () => turn(-1));
      on.addEventListener('click', () => turn(1));
      head.append(back, element('span', { class: 'part' }), on);
    }
    home.append(head, element('div', { class: 'pair' }, element('div', { class: 'column before' }), element('div', { class: 'column after' })));
    main.append(home);
  });

  // ---- choosing ----
  const rowAt = (r, side, i) => main.querySelector(`.row[data-r="${r}"][data-side="${side}"][data-i="${i}"]`);
  const shownAt = (r, side, i) => regions[r].made[side].shown[i];
  function mark() {
    main.querySelectorAll('.row[aria-pressed=true]').forEach((row) => row.setAttribute('aria-pressed', 'false'));
    main.querySelectorAll('.row.other').forEach((row) => row.classList.remove('other'));
    if (!state.chosen) { return; }
    const [r, side, i] = state.chosen, row = rowAt(r, side, shownAt(r, side, i)), other = twin(regions[r], side, i);
    if (row) {
      row.setAttribute('aria-pressed', 'true');
      row.closest('svg').querySelectorAll('.row[tabindex="0"]').forEach((old) => old.setAttribute('tabindex', '-1'));
      row.setAttribute('tabindex', '0');
    }
    const opposite = other && rowAt(r, other[0], shownAt(r, other[0], other[1]));
    if (opposite) { opposite.classList.add('other'); }
  }
  function choose(r, side, i, options) {
    const region = regions[r];
    if (state.side !== 'both' && state.side !== side) { show(side); }
    if (region.parts > 1) {
      const node = region[side].nodes[i], place = side === 'before' ? i : node[2] >= 0 ? node[2] : -1;
      if (place >= 0 && Math.floor(place / Drawing.PART) !== region.part) { region.part = Math.floor(place / Drawing.PART); draw(r); }
    }
    state.chosen = [r, side, i];
    mark();
    tell(region, r, side, i);
    const row = rowAt(r, side, shownAt(r, side, i));
    if (row && !(options && options.still)) {
      row.scrollIntoView({ block: 'center', inline: 'nearest' });
      if (!options || !options.blurred) { row.focus({ preventScroll: true }); }
    }
  }
  function tell(region, r, side, i) {
    const node = region[side].nodes[i], own = fact(region, side, i), other = twin(region, side, i), list = element('dl');
    const say = (name, value) => { if (value) { list.append(element('dt', {}, name), element('dd', {}, value)); } };
    const close = element('button', { type: 'button', class: 'close', 'aria-label': 'Close' }, '×');
    close.addEventListener('click', forget);
    details.classList.add('told');
    details.replaceChildren(close, element('h2', {}, own[KIND] === 'op' || own[KIND] === 'transform' ? own[OP] : own[KIND]),
      element('p', { class: 'name' }, `${node[1] || 'no name of its own'} · ${side}`));
    say('layout', own[LAYOUT]);
    say('tensor', own[SHAPE]);
    say('reads', own[OPERANDS].filter(Boolean).join(', '));
    say('cost', own[COST] && own[COST] + ', modelled');
    say('constants', own[CONSTANTS]);
    say('why', own[WHY]);
    say('rules', own[RULES].join(', '));
    const mates = node[3] < 0 ? [] : region[side].nodes.map((n, k) => [n, k]).filter(([n, k]) => n[3] === node[3] && k !== i);
    say('kernel', mates.length ? 'one with ' + mates.map(([n, k]) => n[1] || fact(region, side, k)[OP]).join(', ') : own[KIND] === 'op' && 'its own');
    if (other) {
      const theirs = fact(region, other[0], other[1]);
      const go = element('button', { type: 'button' }, `${theirs[OP]} ${theirs[LAYOUT]} ${theirs[COST]}`);
      go.addEventListener('click', () => choose(r, other[0], other[1]));
      say(other[0], go);
    } else if (own[KIND] === 'op') { say(side === 'before' ? 'after' : 'before', 'no op of its own there'); }
    details.append(list);
    if (own[WAYS].length) {
      const body = element('tbody');
      own[WAYS].forEach(([how, layout, cost]) => {
        const same = layout === own[LAYOUT] && how === own[WHY];
        body.append(element('tr', same ? { class: 'same' } : {}, element('td', {}, layout), element('td', {}, how), element('td', { class: 'n' }, cost)));
      });
      details.append(element('h3', {}, 'Ways to make it: all steps, without layout transforms'), element('table', {},
        element('thead', {}, element('tr', {}, element('th', {}, 'layout'), element('th', {}, 'how'), element('th', {}, 'cost'))), body));
    }
  }
  const hint = details.innerHTML;
  function forget() {
    state.chosen = null;
    details.innerHTML = hint;
    details.classList.remove('told');
    mark();
  }
  function unfold(badge) { // or fold again
    const r = +badge.dataset.r, side = badge.dataset.side, open = regions[r].open[side], fold = +badge.dataset.fold;
    if (!open.delete(fold)) { open.add(fold); }
    draw(r);
    const again = main.querySelector(`.badge[data-r="${r}"][data-side="${side}"][data-fold="${fold}"]`);
    if (again) { again.focus({ preventScroll: true }); }
  }
  main.addEventListener('click', (event) => {
    const badge = event.target.closest('.badge'), row = event.target.closest('.row');
    if (badge) { unfold(badge); } else if (row) { choose(+row.dataset.r, row.dataset.side, +row.dataset.i); }
  });

  // ---- keys ----
  function near(region, r, side, i, down) { // along an edge, or to the next row of the kernel
    const made = region.made[side], card = made.cards[made.cardOf.get(i)], at = card.rows.indexOf(i) + (down ? 1 : -1);
    if (card.rows[at] !== undefined) { return card.rows[at]; }
    const own = made.cardOf.get(i), edge = made.edges.find((e) => (down ? e.a : e.b) === own);
    if (!edge) { return i; }
    const rows = made.cards[down ? edge.b : edge.a].rows;
    return down ? rows[0] : rows[rows.length - 1];
  }
  main.addEventListener('keydown', (event) => {
    const row = event.target.closest && event.target.closest('.row'), badge = event.target.closest && event.target.closest('.badge');
    if (badge && (event.key === 'Enter' || event.key === ' ')) { unfold(badge); event.preventDefault(); }
    if (!row) { return; }
    const r = +row.dataset.r, side = row.dataset.side, i = +row.dataset.i, region = regions[r];
    if (event.key === 'Enter' || event.key === ' ') { choose(r, side, i); }
    else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { choose(r, side, near(region, r, side, i, event.key === 'ArrowDown')); }
    else if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      const other = twin(region, side, i), wanted = event.key === 'ArrowLeft' ? 'before' : 'after';
      if (other && other[0] === wanted) { choose(r, wanted, shownAt(r, wanted, other[1])); }
    } else { return; }
    event.preventDefault();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { forget(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) { return; }
    if (event.key === 'n') { step(1); } else if (event.key === 'p') { step(-1); }
    else if (event.key === '/') { document.getElementById('search').focus(); event.preventDefault(); }
  });

  // ---- next and previous change, search ----
  function stops() { // one for each kernel that changed, as drawn; on the left those of which nothing is left
    const found = [];
    regions.forEach((region, r) => {
      const own = [];
      ['after', 'before'].forEach((side) => region.made[side].cards.forEach((card) => {
        const i = card.rows.find((row) => region.changed[side][row] && (side === 'after' || !twin(region, side, row)));
        if (i !== undefined) { own.push([r, side, i, card]); }
      }));
      found.push(...own.sort((a, b) => a[3].y - b[3].y));
    });
    return found;
  }
  function step(by) {
    const all = stops();
    if (!all.length) { document.getElementById('found').textContent = 'nothing changes'; return; }
    let at = by > 0 ? -1 : all.length;
    if (state.chosen) {
      const [r, side, i] = state.chosen, places = [[side, i], twin(regions[r], side, i)].filter(Boolean);
      const found = all.findIndex(([s, own, , card]) =>
        s === r && places.some(([at_, k]) => at_ === own && card.rows.includes(shownAt(r, own, k))));
      at = found >= 0 ? found : at;
    }
    const [r, side, i] = all[(at + by + all.length) % all.length];
    choose(r, side, i);
  }
  let hits = [], hit = -1;
  function search(text) {
    const wanted = text.trim().toLowerCase();
    main.querySelectorAll('.row.found').forEach((row) => row.classList.remove('found'));
    hits = []; hit = -1;
    if (wanted) {
      regions.forEach((region, r) => ['after', 'before'].forEach((side) => region[side].nodes.forEach((node, i) => {
        const own = fact(region, side, i);
        if ([own[OP], node[1], own[LAYOUT], own[SHAPE], own[WHY]].some((t) => t.toLowerCase().includes(wanted))) {
          hits.push([r, side, i]);
          const row = rowAt(r, side, shownAt(r, side, i));
          if (row) { row.classList.add('found'); }
        }
      })));
    }
    document.getElementById('found').textContent = wanted ? `${hits.length} found` : '';
  }
  const box = document.getElementById('search');
  box.addEventListener('input', () => search(box.value));
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && hits.length) {
      hit = (hit + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
      choose(...hits[hit], { blurred: true });
      document.getElementById('found').textContent = `${hit + 1} of ${hits.length}`;
    }
  });
  document.querySelectorAll('.changes button').forEach((row) => {
    const go = () => {
      for (let r = 0; r < regions.length; r++) {
        const i = regions[r].before.nodes.findIndex((node, k) => node[1] === row.dataset.name && fact(regions[r], 'before', k)[OP] === row.dataset.op);
        if (i < 0) { continue; }
        const other = twin(regions[r], 'before', i);
        return other ? choose(r, ...other) : choose(r, 'before', i);
      }
      for (const side of ['after', 'before']) { // layout transforms: the first that stays, or the first that goes
        for (let r = 0; r < regions.length; r++) {
          const i = regions[r][side].nodes.findIndex((_, k) => fact(regions[r], side, k)[KIND] === 'transform');
          if (i >= 0) { return choose(r, side, i); }
        }
      }
    };
    row.addEventListener('click', go);
  });

  // ---- tools ----
  document.getElementById('next').addEventListener('click', () => step(1));
  document.getElementById('previous').addEventListener('click', () => step(-1));
  document.getElementById('fold').addEventListener('change', (event) => {
    state.fold = event.target.checked;
    regions.forEach((region) => { region.open.before.clear(); region.open.after.clear(); });
    drawAll();
  });
  document.querySelectorAll('[data-zoom]').forEach((button) => button.addEventListener('click', () => {
    const factor = parseFloat(button.dataset.zoom);
    resize(factor ? Math.min(3, Math.max(0.2, state.zoom * factor)) : 1);
  }));
  function show(side) {
    state.side = side;
    main.dataset.shown = side;
    document.querySelectorAll('[data-show]').forEach((b) => b.setAttribute('aria-pressed', String(b.dataset.show === side)));
  }
  document.querySelectorAll('[data-show]').forEach((button) => button.addEventListener('click', () => show(button.dataset.show)));
  show(state.side);
  drawAll();
  if (regions.length) { fit(); }
})();
