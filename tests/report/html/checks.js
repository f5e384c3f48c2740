// What the tests ask of the page in the browser.
function meet(a, b) {
  return a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
}

// How many cards a side has, and what lies on something else.
function overlaps(side) {
  const all = (selector) => [...document.querySelectorAll(`.column.${side} ${selector}`)];
  const box = (element) => element.getBoundingClientRect();
  const cards = all('.frame').map(box), bad = [];
  cards.forEach((a, i) => cards.slice(i + 1).forEach((b) => { if (meet(a, b)) { bad.push('cards'); } }));
  all('.bytes').forEach((label) => cards.forEach((card) => {
    if (meet(box(label), card)) { bad.push('label ' + label.textContent); }
  }));
  all('.row').forEach((row) => {
    const own = box(row.querySelector('.hit')), texts = [...row.querySelectorAll('text')].map(box);
    texts.forEach((t, i) => {
      if (t.left < own.left || t.right > own.right + 0.5) { bad.push('outside: ' + row.textContent); }
      texts.slice(i + 1).forEach((u) => { if (meet(t, u)) { bad.push('text: ' + row.textContent); } });
    });
  });
  return [cards.length, bad];
}

// How many texts there are, and those with less than 4.5 to 1 (WCAG 2.1, AA).
function unreadable() {
  const curve = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((v) => curve(Number(v) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!colour.startsWith('rgba(0, 0, 0, 0')) { return colour; }
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = new Set();
  let seen = 0;
  const check = (colour, ground, text) => { seen++; if (ratio(colour, ground) < 4.5) { bad.add(text); } };
  document.querySelectorAll('.row text, .bytes').forEach((text) => {
    const row = text.closest('.row.transform');
    const ground = row ? getComputedStyle(row.querySelector('.hit')).fill : behind(text.closest('.column'));
    check(getComputedStyle(text).fill, ground, text.textContent);
  });
  document.querySelectorAll('header *, .tools *, .legend *, aside *, .text *').forEach((element) => {
    const says = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (says && getComputedStyle(element).display !== 'none') {
      check(getComputedStyle(element).color, behind(element), element.textContent);
    }
  });
  return [seen, [...bad]];
}

// How many ops are drawn on both sides, and how many of them at one height.
function aligned() {
  const at = (side) => new Map([...document.querySelectorAll(`.column.${side} .row.op`)].map((row) =>
    [row.getAttribute('aria-label').split(', ').slice(0, 2).join(), row.closest('.card').getBoundingClientRect()]));
  const before = at('before'), after = at('after'), both = [...before.keys()].filter((key) => after.has(key));
  const middle = (box) => (box.top + box.bottom) / 2;
  const level = both.filter((key) => Math.abs(middle(before.get(key)) - middle(after.get(key))) < 3);
  return [both.length, level.length];
}

function shownColumns() {
  return [...document.querySelectorAll('.column')].filter((c) => c.offsetParent !== null).map((c) => c.className);
}

// Numbers of the rows of each card of the plan that has changed ones.
function changedCards() {
  const cards = [...document.querySelectorAll('.column.after .card')].filter((c) => c.querySelector('.row.changed'));
  return cards.map((card) => [...card.querySelectorAll('.row')].map((row) => 'after ' + row.dataset.i));
}

function focused() {
  return [document.activeElement.dataset.side, document.activeElement.getAttribute('aria-label')];
}

function chosen() {
  const row = document.querySelector('.row[aria-pressed=true]');
  return row.dataset.side + ' ' + row.dataset.i;
}
