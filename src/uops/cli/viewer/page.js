"use strict";
(async () => {
  const main = document.querySelector(".columns"), panel = document.getElementById("panel");
  const columns = [...document.querySelectorAll(".column")], boxes = columns.map((c) => c.querySelector(".lines"));
  const kernel = document.getElementById("kernel"), filter = document.getElementById("filter"), direct = document.getElementById("direct");
  // Lines of a block, which has elements only while it is near the window, and the height of a line in CSS pixels.
  const BLOCK = 200, HEIGHT = 18, NEAR = "600px 0px";

  const make = (tag, className, ...children) => {
    const el = document.createElement(tag);
    if (className) el.className = className;
    el.append(...children);
    return el;
  };

  // -------------------------------------------------------------------------------------------------------------- data

  if (!("DecompressionStream" in window)) {
    panel.replaceChildren(make("p", "", "This browser cannot unpack the page: it needs DecompressionStream (Chromium 80, Firefox 113, Safari 16.4 or later)."));
    return;
  }

  const once = (f) => { const known = new Map(); return (k) => { if (!known.has(k)) known.set(k, f(k)); return known.get(k); }; };

  const chunk = once(async (k) => {
    const bytes = Uint8Array.from(atob(document.getElementById(`c${k}`).textContent), (c) => c.charCodeAt(0));
    return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
  });

  const data = await chunk(document.querySelector(".work").dataset.index.slice(1));
  const last = data.stages.length - 1;

  // The lines of a chunk: a template for each, and in its holes how many lines before it the nodes stand that it names.
  const lines = once(async (k) => {
    const { templates, which, depths, holes } = await chunk(k), starts = new Int32Array(which.length + 1);
    const pieces = templates.map((t) => t[1].split("\x01"));
    which.forEach((t, i) => { starts[i + 1] = starts[i] + pieces[t].length - 1; });
    return { templates, which, depths, holes, starts, pieces };
  });

  const sums = (differences) => { let n = 0; return Int32Array.from(differences, (d) => (n += d)); };
  const index = (numbers) => {
    const found = new Map();
    numbers.forEach((n, p) => { if (found.has(n)) found.get(n).push(p); else found.set(n, [p]); });
    return found;
  };
  const links = once(async (k) => {
    const found = await chunk(k), from = sums(found.from), to = sums(found.to);
    return { ...found, ends: [from, to], starts: [index(from), index(to)] };
  });

  class Group {
    constructor(stage, number, [name, first, size, chunks, only, decisions]) {
      Object.assign(this, { stage, number, name, first, size, chunks, kernel: only, decisions });
      this.order = null; // the numbers of the lines that the filter leaves; null: all
      this.element = null;
    }

    // Unpack the lines: those of the arguments, then those of the body.
    async load() { if (this.size && !this.parts) this.parts = await Promise.all(this.chunks.map(lines)); }

    part(i) { const n = this.parts[0].which.length; return i < n ? [this.parts[0], i, 0] : [this.parts[1], i - n, n]; }

    operands(i) { const [p, k] = this.part(i); return p.holes.slice(p.starts[k], p.starts[k + 1]).map((d) => i - d); }

    users(i) {
      const found = [];
      for (let k = 0; k < this.size; k++) {
        const [p, j] = this.part(k);
        for (let h = p.starts[j]; h < p.starts[j + 1]; h++) if (k - p.holes[h] === i) { found.push(k); break; }
      }
      return found;
    }

    line(i) {
      const [p, k] = this.part(i), t = p.which[k], [op, , type, style] = p.templates[t], names = this.operands(i);
      return { name: `%${i}`, op, rest: p.pieces[t].reduce((text, piece, n) => `${text}%${names[n - 1]}${piece}`), type, style, depth: p.depths[k] };
    }

    text(i) { const x = this.line(i); return `${x.name} ${x.op} ${x.rest}${x.type ? `  ${x.type}` : ""}`; }

    get count() { return this.order ? this.order.length : this.size; }
    number_of(position) { return this.order ? this.order[position] : position; }
    position_of(i) {
      if (!this.order) return i;
      let low = 0, high = this.order.length;
      while (low < high) { const mid = (low + high) >> 1; if (this.order[mid] < i) low = mid + 1; else high = mid; }
      return this.order[low] === i ? low : -1;
    }
  }

  const groups = data.groups.map((all, stage) => all.map((g, k) => new Group(stage, k, g)));
  const chosenKernel = () => (kernel.value === "" ? null : +kernel.value);
  const isShown = (g) => chosenKernel() === null || g.kernel === null || g.kernel === chosenKernel();
  const shown = (stage) => groups[stage].filter(isShown);
  const isOpen = (stage) => !columns[stage].classList.contains("shut");

  // The group of a line, and its number there.
  function find(stage, n) {
    const all = groups[stage] || [];
    let low = 0, high = all.length;
    while (high - low > 1) { const mid = (low + high) >> 1; if (all[mid].first <= n) low = mid; else high = mid; }
    while (low + 1 < all.length && !all[low].size) low++;
    return all[low] && n - all[low].first < all[low].size ? [all[low], n - all[low].first] : [null, -1];
  }

  // ------------------------------------------------------------------------------------------------------------- lines

  const marks = groups.map(() => new Map()); // stage -> line -> classes
  const reached = groups.map(() => null); // stages before kernels: the lines of which the kernel was made
  const roving = groups.map(() => null); // the line of a column that the Tab key goes to
  let selected = null; // [stage, n]

  const at = (stage, n) => document.getElementById(`s${stage}n${n}`);
  const place = (el) => { const m = /^s(\d+)n(\d+)$/.exec(el.id); return m && [+m[1], +m[2]]; };

  function lineElement(g, i, words) {
    const x = g.line(i), n = g.first + i, el = make("div", x.style, make("b", "", x.name), " ", make("i", "", x.op), ` ${x.rest}`);
    if (x.type) el.append(" ", make("s", "", x.type));
    el.id = `s${g.stage}n${n}`;
    el.setAttribute("role", "option");
    if (x.depth) el.style.setProperty("--d", x.depth);
    if (words) el.classList.add("hit");
    paint(el, g.stage, n);
    return el;
  }

  function paint(el, stage, n) {
    el.classList.remove("on", "made", "operand", "user", "outside");
    for (const name of marks[stage].get(n) || []) el.classList.add(name);
    if (reached[stage] && !reached[stage].has(n)) el.classList.add("outside");
    el.setAttribute("aria-selected", String(!!selected && selected[0] === stage && selected[1] === n));
    el.tabIndex = roving[stage] === n ? 0 : -1;
  }

  const watchers = boxes.map((root) => new IntersectionObserver((seen) => {
    for (const e of seen) if (e.isIntersecting) fill(e.target); else drain(e.target);
  }, { root, rootMargin: NEAR }));

  async function fill(block) {
    const { group, from, to } = block;
    if (block.firstChild || !block.isConnected) return;
    if (!group.size) { block.textContent = (await chunk(group.chunks[0])).code; return; }
    await group.load();
    fillNow(block);
  }

  // Of a group that is loaded.
  function fillNow(block) {
    const { group, from, to } = block;
    if (block.firstChild || !block.isConnected) return;
    const found = document.createDocumentFragment();
    for (let k = from; k < to; k++) found.append(lineElement(group, group.number_of(k), group.order !== null));
    block.append(found);
  }

  function drain(block) {
    if (block.group.size && !block.contains(document.activeElement)) block.replaceChildren();
  }

  // The element of a group, with blocks of the height that their lines will have.
  function build(g) {
    const head = [make("h3", "", g.name)];
    if (g.decisions.length) head.push(make("p", "decisions", ...g.decisions.map((d) => make("span", "", d))));
    g.element = make("div", "group", ...head);
    Object.assign(g.element.dataset, { kernel: g.number });
    g.element.setAttribute("role", "group");
    g.element.setAttribute("aria-label", g.name);
    layout(g);
  }

  function layout(g) {
    for (const block of g.element.querySelectorAll(".block")) { watchers[g.stage].unobserve(block); block.remove(); }
    g.element.hidden = g.size > 0 && g.count === 0;
    for (let from = 0; from < (g.size ? g.count : 1); from += BLOCK) {
      const block = make(g.size ? "div" : "pre", "block"), to = Math.min(from + BLOCK, g.count);
      if (g.size) { block.style.height = `${(to - from) * HEIGHT}px`; block.setAttribute("role", "presentation"); }
      Object.assign(block, { group: g, from, to });
      g.element.append(block);
      watchers[g.stage].observe(block);
    }
  }

  // The words of the filter, and which of the shown lines have them all.
  const words = () => filter.value.toLowerCase().split(/\s+/).filter(Boolean);

  function hits(g, asked) {
    const found = [];
    for (let i = 0; i < g.size; i++) { const text = g.text(i).toLowerCase(); if (asked.every((w) => text.includes(w))) found.push(i); }
    return found;
  }

  const turns = groups.map(() => 0);

  // Show what a column has to show: the groups of the kernel, the lines that the filter leaves. False: something newer was asked.
  async function draw(stage) {
    const turn = ++turns[stage], asked = words(), now = shown(stage);
    if (!isOpen(stage)) { boxes[stage].replaceChildren(); return true; }
    if (asked.length) await Promise.all(now.map((g) => g.load()));
    if (turn !== turns[stage]) return false;
    for (const g of now) {
      g.order = asked.length && g.size ? hits(g, asked) : null;
      if (g.element) layout(g); else build(g);
    }
    const left = now.reduce((n, g) => n + g.count, 0), size = now.reduce((n, g) => n + g.size, 0);
    const none = size && !left ? [make("p", "empty", now.length < groups[stage].length ? "No line of this kernel has these words." : "No line has these words.")] : [];
    boxes[stage].replaceChildren(...none, ...now.map((g) => g.element));
    await fillFirst(now);
    note(stage, left, size);
    if (roving[stage] === null || !visible(stage, roving[stage])) {
      const first = now.find((g) => g.count);
      roving[stage] = first ? first.first + first.number_of(0) : null;
    }
    return true;
  }

  // What is in the window at the top of a column, without waiting to be told of it.
  async function fillFirst(now) {
    for (let k = 0, left = BLOCK / 2; k < now.length && left > 0; left -= now[k++].count || 10) {
      const block = now[k].element.querySelector(".block");
      if (block) await fill(block);
    }
  }

  function note(stage, left, size) {
    const count = columns[stage].querySelector(".count"), whole = data.sizes[stage];
    if (data.same[stage] || !whole) return;
    const some = left < size ? `${left.toLocaleString("en")} of ` : "";
    count.textContent = `${some}${size.toLocaleString("en")} ${size < whole ? `of ${whole.toLocaleString("en")} ` : ""}nodes`;
  }

  const visible = (stage, n) => {
    const [g, i] = find(stage, n);
    return !!g && isOpen(stage) && isShown(g) && !!g.element && g.element.isConnected && g.position_of(i) >= 0;
  };

  // The element of a line that is visible; it is made if need be.
  async function reveal(stage, n) {
    if (!visible(stage, n)) return null;
    const [g, i] = find(stage, n);
    await g.load();
    const block = g.element.querySelectorAll(".block")[Math.floor(g.position_of(i) / BLOCK)];
    if (block) fillNow(block);
    return at(stage, n);
  }

  // Scroll inside of the column only.
  function show(el) {
    if (!el) return;
    const box = el.closest(".lines"), b = box.getBoundingClientRect(), e = el.getBoundingClientRect();
    if (!e.height || (e.top > b.top + 30 && e.bottom < b.bottom - 10)) return;
    box.scrollTop += e.top - b.top - b.height / 3;
  }

  // ------------------------------------------------------------------------------------------------------------- links

  const joints = [0, 1].map((end) => data.joints.map((all) => {
    const found = new Map();
    for (const j of all) if (found.has(j[end])) found.get(j[end]).push(j); else found.set(j[end], [j]);
    return found;
  }));

  // The lines that those of a stage are linked with across a boundary, by number: [line, line there, made, cause]. `forward`: ahead.
  async function* across(boundary, forward, from) {
    const end = forward ? 0 : 1, stage = boundary + end, there = boundary + 1 - end, byGroup = new Map();
    for (const n of from) {
      const [g, i] = find(stage, n);
      if (!g) continue;
      if (byGroup.has(g)) byGroup.get(g).push(i); else byGroup.set(g, [i]);
    }
    for (const [g, numbers] of byGroup) for (const j of joints[end][boundary].get(g.number) || []) {
      const other = groups[there][j[1 - end]];
      if (!isShown(other)) continue;
      const found = await links(j[2]);
      for (const i of numbers) for (const p of found.starts[end].get(i) || []) {
        yield [g.first + i, other.first + found.ends[1 - end][p], found.why[p] & 1, { links: found, cause: found.why[p] >> 1 }];
      }
    }
  }

  // Everything linked with a line, in what is shown: per stage a map line -> made. `causes` of each boundary, in order.
  async function closure(stage, n, onlyDirect) {
    const found = data.stages.map(() => new Map()), causes = data.joints.map(() => new Map());
    found[stage].set(n, 0);
    const walk = async (from, boundary, to, forward) => {
      for await (const [m, other, made, why] of across(boundary, forward, found[from].keys())) {
        const also = found[from].get(m) | made;
        if (also && onlyDirect) continue;
        const old = found[to].get(other);
        if (old === undefined || old > also) found[to].set(other, also);
        if (!causes[boundary].has(why.links)) causes[boundary].set(why.links, new Set());
        causes[boundary].get(why.links).add(why.cause);
      }
    };
    for (let k = stage; k < last; k++) await walk(k, k, k + 1, true);
    for (let k = stage; k > 0; k--) await walk(k, k - 1, k - 1, false);
    return { found, causes };
  }

  // ------------------------------------------------------------------------------------------------------------ choose

  let turn = 0;
  const help = panel.innerHTML;

  function repaint() {
    for (const el of document.querySelectorAll('[role="option"]')) paint(el, ...place(el));
  }

  function mark(stage, n, name) {
    const names = marks[stage].get(n);
    if (names) names.push(name); else marks[stage].set(n, [name]);
  }

  async function choose(stage, n, move = true) {
    const mine = ++turn;
    marks.forEach((m) => m.clear());
    selected = stage === null ? null : [stage, n];
    main.classList.toggle("chosen", !!selected);
    if (!selected) {
      repaint();
      panel.innerHTML = help;
      tellSome();
      history.replaceState(null, "", location.pathname + location.search);
      return;
    }
    const [g, i] = find(stage, n);
    await g.load();
    const { found, causes } = await closure(stage, n, direct.getAttribute("aria-pressed") === "true");
    await Promise.all(found.flatMap((m, k) => [...new Set([...m.keys()].map((x) => find(k, x)[0]))]).map((x) => x.load()));
    if (mine !== turn) return;
    found.forEach((m, k) => { for (const [line, made] of m) mark(k, line, made ? "made" : "on"); });
    const near = { operand: [...new Set(g.operands(i))], user: g.users(i) };
    for (const [name, numbers] of Object.entries(near)) for (const k of numbers) if (k !== i) mark(stage, g.first + k, name);
    repaint();
    tell(g, i, found, causes, near);
    history.replaceState(null, "", `#s${stage}n${n}`);
    const firsts = found.map((m, k) => (k === stage ? undefined : inOrder(m).map(([x]) => x).find((x) => visible(k, x))));
    for (const [k, first] of firsts.entries()) if (first !== undefined) show(await reveal(k, first));
    if (move) show(await reveal(stage, n));
  }

  const let_go = () => choose(null, null);
  const toggle = (stage, n, move) => (selected && selected[0] === stage && selected[1] === n ? let_go() : choose(stage, n, move));

  // Direct links first, then by line.
  const inOrder = (found) => [...found].sort((a, b) => a[1] - b[1] || a[0] - b[0]);

  // Choose a line and go there: its column is opened, and its kernel shown.
  async function visit(stage, n) {
    const [g] = find(stage, n);
    if (!g) return;
    if (!isShown(g)) { kernel.value = String(g.kernel); await onlyKernel(); }
    if (!isOpen(stage)) await setOpen(stage, true);
    await choose(stage, n);
    await go(stage, n);
  }

  // Give a line the focus of the keyboard.
  async function go(stage, n) {
    const el = await reveal(stage, n);
    if (!el) return;
    el.focus({ preventScroll: true });
    show(el);
    el.closest(".column").scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // ------------------------------------------------------------------------------------------------------------- panel

  const SHOWN = 8, NEIGHBOURS = 12;

  function reference(stage, n, made, label) {
    const [g, i] = find(stage, n), button = make("button", made ? "ref made" : "ref", label || g.text(i));
    button.type = "button";
    button.title = g.text(i);
    button.addEventListener("click", () => visit(stage, n));
    return button;
  }

  function tell(g, i, found, causes, near) {
    const { stage } = g, parts = [make("h2", "", `${data.stages[stage]}, ${g.name}`), make("div", "node", g.text(i))];
    for (const [kind, label] of [["operand", "operands"], ["user", "used by"]]) {
      const inside = near[kind].filter((k) => k >= 0 && k < g.size && k !== i);
      if (inside.length) parts.push(make("div", "near", label, ...inside.slice(0, NEIGHBOURS).map((k) => reference(stage, g.first + k, false, `%${k}`)),
        inside.length > NEIGHBOURS ? `and ${inside.length - NEIGHBOURS} more` : ""));
    }
    for (let k = stage - 1; k >= 0; k--) parts.push(way(k, k, found[k], causes[k], "came from"));
    for (let k = stage; k < last; k++) parts.push(way(k, k + 1, found[k + 1], causes[k], "became"));
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  }

  function way(boundary, to, found, causes, word) {
    const name = data.stages[boundary + 1];
    const section = make("section", "way", make("h3", "", `${data.stages[boundary]} → ${name}`, make("span", "", word)));
    if (!data.sizes[to]) { section.append(make("p", "none", "no recorded link: the renderer gives text")); return section; }
    if (!found.size) { section.append(make("p", "none", chosenKernel() === null ? "no recorded link" : "no recorded link in this kernel")); return section; }
    const { passes, steps } = reasons(causes);
    if (data.same[boundary + 1]) { section.classList.add("still"); section.append(make("p", "none", "unchanged")); return section; }
    const sorted = inOrder(found);
    section.append(make("div", "refs", ...sorted.slice(0, SHOWN).map(([n, made]) => reference(to, n, made))));
    if (sorted.length > SHOWN) section.append(make("p", "by", `and ${sorted.length - SHOWN} more lines`));
    section.append(passes.size ? make("p", "by", "by ", make("b", "", [...passes].join(", "))) : make("p", "by", steps.length ? "by rules" : "unchanged"));
    for (const step of steps.slice(0, SHOWN)) section.append(rule(step));
    if (steps.length > SHOWN) section.append(make("p", "by", `and ${steps.length - SHOWN} more steps`));
    return section;
  }

  function reasons(causes) {
    const passes = new Set(), steps = [];
    for (const [found, numbers] of causes) {
      const own = new Set();
      for (const c of numbers) for (const [by, step] of found.causes[c]) if (step < 0) passes.add(by); else own.add(step);
      for (const step of own) steps.push(found.steps[step]);
    }
    return { passes, steps };
  }

  function rule([name, before, after, bound]) {
    const box = make("div", "rule", make("h4", "", name, make("span", "", "rule")));
    const statement = data.rules[name];
    if (statement) box.append(make("code", "", statement.slice(name.length + 2)));
    const where = Object.entries(bound).map(([k, v]) => `${k} = ${v}`).join(", ");
    const rows = [["before", before], ["after", after]].concat(where ? [["where", where]] : []);
    box.append(make("div", "ba", ...rows.flatMap(([label, value]) => [make("span", "", label), make("code", "", value)])));
    return box;
  }

  function tellSome() { const some = document.getElementById("some"); if (some) some.hidden = chosenKernel() === null; }

  // ----------------------------------------------------------------------------------------------------------- columns

  const toggles = [...document.querySelectorAll(".toggles button")];

  async function setOpen(k, open) {
    columns[k].classList.toggle("shut", !open);
    toggles[k].setAttribute("aria-pressed", String(open));
    await draw(k);
  }
  toggles.forEach((b, k) => b.addEventListener("click", () => setOpen(k, !isOpen(k))));
  columns.forEach((c, k) => c.addEventListener("click", () => { if (!isOpen(k)) setOpen(k, true); }));

  // ------------------------------------------------------------------------------------------------------------ kernel

  data.kernels.forEach((name, k) => { const option = make("option", "", name); option.value = k; kernel.append(option); });

  async function onlyKernel() {
    reached.fill(null);
    const k = chosenKernel();
    if (k !== null && data.kernels.length > 1) await findReached(k);
    await Promise.all(columns.map((_, stage) => draw(stage)));
    tellSome();
    for (const [stage, from] of reached.entries()) {
      const first = from && Math.min(...from);
      if (from && from.size && visible(stage, first)) show(await reveal(stage, first));
    }
    if (!selected) repaint();
    else if (isShown(find(...selected)[0])) await choose(...selected, false);
    else await let_go();
  }

  // The lines of the stages before kernels of which this kernel was made.
  async function findReached(k) {
    const start = groups.findIndex((all) => all.some((g) => g.kernel === k));
    let wanted = new Set();
    for (const g of groups[start].filter((x) => x.kernel === k)) for (let i = 0; i < g.size; i++) wanted.add(g.first + i);
    for (let stage = start; stage > 0; stage--) {
      const before = new Set();
      for await (const [, m] of across(stage - 1, false, wanted)) before.add(m);
      reached[stage - 1] = wanted = before;
    }
  }
  kernel.addEventListener("change", onlyKernel);

  // ------------------------------------------------------------------------------------------------------------ filter

  filter.addEventListener("input", async () => { await Promise.all(columns.map((_, stage) => draw(stage))); });

  // -------------------------------------------------------------------------------------------------------------- keys

  // The next visible line of the column.
  function step(stage, n, by) {
    const now = shown(stage), [g, i] = find(stage, n);
    let k = now.indexOf(g), position = g.position_of(i) + by;
    while (now[k] && (position < 0 || position >= now[k].count)) {
      k += by;
      if (now[k]) position = by > 0 ? 0 : now[k].count - 1;
    }
    return now[k] ? [stage, now[k].first + now[k].number_of(position)] : null;
  }

  async function sideways(stage, n, by) {
    const { found } = await closure(stage, n, false);
    for (let k = stage + by; k >= 0 && k <= last; k += by) {
      if (!isOpen(k)) continue;
      const line = inOrder(found[k]).map(([m]) => m).find((m) => visible(k, m));
      if (line !== undefined) return [k, line];
      if (found[k].size === 0) break;
    }
    return null;
  }

  const MOVES = {
    ArrowDown: (stage, n) => step(stage, n, 1), ArrowUp: (stage, n) => step(stage, n, -1),
    ArrowRight: (stage, n) => sideways(stage, n, 1), ArrowLeft: (stage, n) => sideways(stage, n, -1),
  };

  // The first line of all.
  function first() {
    for (let stage = 0; stage <= last; stage++) {
      const g = isOpen(stage) && shown(stage).find((x) => x.count);
      if (g) {
        const [inside] = reached[stage] ? [...reached[stage]].sort((a, b) => a - b).filter((n) => visible(stage, n)) : [];
        return [stage, inside === undefined ? g.first + g.number_of(0) : inside];
      }
    }
    return null;
  }

  async function arrow(key, from) {
    if (!from) {
      const line = first();
      if (line) { await choose(...line); await go(...line); }
      return;
    }
    const next = await MOVES[key](...from);
    if (next) await go(...next);
  }

  main.addEventListener("click", (e) => {
    const el = e.target.closest('[role="option"]');
    if (el) toggle(...place(el), false);
  });
  main.addEventListener("focusin", (e) => {
    const el = e.target.closest('[role="option"]');
    if (!el) return;
    const [stage, n] = place(el), old = roving[stage] === null ? null : at(stage, roving[stage]);
    if (old) old.tabIndex = -1;
    roving[stage] = n;
    el.tabIndex = 0;
  });

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target === filter, line = e.target.closest?.('[role="option"]');
    if (e.key === "Escape") { if (typing) { filter.value = ""; filter.dispatchEvent(new Event("input")); filter.blur(); } else let_go(); }
    else if (typing || e.target === kernel) return;
    else if (MOVES[e.key] && (line || !panel.contains(e.target))) {
      e.preventDefault();
      const chosen = selected && visible(...selected) ? selected : null;
      arrow(e.key, line ? place(line) : chosen);
    } else if (line && (e.key === "Enter" || e.key === " ")) { e.preventDefault(); toggle(...place(line)); }
    else if (e.key === "/") { e.preventDefault(); filter.focus(); }
    else if (e.key === "j" || e.key === "k") {
      const next = kernel.selectedIndex + (e.key === "j" ? 1 : -1);
      if (next >= 0 && next < kernel.options.length) { kernel.selectedIndex = next; onlyKernel(); }
    }
  });

  direct.addEventListener("click", () => {
    direct.setAttribute("aria-pressed", String(direct.getAttribute("aria-pressed") !== "true"));
    if (selected) choose(...selected, false);
  });
  document.getElementById("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("beforeprint", () => { for (const all of groups) for (const g of all) if (g.parts && g.element) g.element.querySelectorAll(".block").forEach(fillNow); });

  const asked = /^#s(\d+)n(\d+)$/.exec(location.hash), [linked] = asked ? find(+asked[1], +asked[2]) : [null];
  const begin = linked && linked.kernel !== null ? linked.kernel : data.first;
  if (data.first !== null) kernel.value = String(begin);
  await onlyKernel();
  if (linked) await visit(+asked[1], +asked[2]);
  document.documentElement.dataset.ready = "";
})();
