"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.querySelector(".columns"), panel = document.getElementById("panel"), help = panel.innerHTML;
  const columns = [...document.querySelectorAll(".column")], kernel = document.getElementById("kernel");
  const filter = document.getElementById("filter"), direct = document.getElementById("direct");
  const STRIDE = 4;
  const at = (stage, n) => document.getElementById(`s${stage}n${n}`);
  const place = (el) => { const m = /^s(\d+)n(\d+)$/.exec(el.id); return m && [+m[1], +m[2]]; };

  // forward[k][n] and backward[k][n]: positions in links[k] of the links from and to line n.
  const index = (flat, field) => {
    const found = new Map();
    for (let p = 0; p < flat.length; p += STRIDE) {
      const n = flat[p + field];
      if (!found.has(n)) found.set(n, []);
      found.get(n).push(p);
    }
    return found;
  };
  const forward = data.links.map((flat) => index(flat, 0)), backward = data.links.map((flat) => index(flat, 1));

  const groupOf = (stage, n) => data.groups[stage].findIndex(([first, size]) => n >= first && n < first + size);

  // Everything linked with a line: per stage a map line -> made. `causes` of each boundary, in order.
  function closure(stage, n, onlyDirect) {
    const found = data.stages.map(() => new Map());
    const causes = data.links.map(() => new Set());
    found[stage].set(n, 0);
    const walk = (from, boundary, to, positions, field) => {
      for (const [m, made] of found[from]) for (const p of positions.get(m) || []) {
        const also = made | data.links[boundary][p + 2];
        if (also && onlyDirect) continue;
        const other = data.links[boundary][p + field], old = found[to].get(other);
        if (old === undefined || old > also) found[to].set(other, also);
        causes[boundary].add(data.links[boundary][p + 3]);
      }
    };
    for (let k = stage; k < data.links.length; k++) walk(k, k, k + 1, forward[k], 1);
    for (let k = stage; k > 0; k--) walk(k, k - 1, k - 1, backward[k - 1], 0);
    return { found, causes };
  }

  // ------------------------------------------------------------------------------------------------------------ choose

  let chosen = null, lit = [];

  function clear() {
    for (const el of lit) { el.classList.remove("on", "made", "operand", "user"); el.setAttribute("aria-selected", "false"); }
    lit = [];
  }

  function choose(el, move = true) {
    clear();
    chosen = el;
    main.classList.toggle("chosen", !!el);
    if (!el) {
      panel.innerHTML = help;
      history.replaceState(null, "", location.pathname + location.search);
      return;
    }
    const [stage, n] = place(el);
    const { found, causes } = closure(stage, n, direct.getAttribute("aria-pressed") === "true");
    const firsts = [];
    found.forEach((lines, k) => {
      const sorted = inOrder(lines);
      for (const [m, made] of sorted) {
        const line = at(k, m);
        if (!line) continue;
        line.classList.add(made ? "made" : "on");
        lit.push(line);
      }
      const first = sorted.map(([m]) => at(k, m)).find(visible);
      if (first && k !== stage) firsts.push(first);
    });
    firsts.forEach(show);
    requestAnimationFrame(() => firsts.forEach(show)); // groups get their real heights when they come into view
    el.setAttribute("aria-selected", "true");
    const near = neighbours(el);
    for (const [kind, lines] of Object.entries(near)) for (const line of lines) { line.classList.add(kind); lit.push(line); }
    tell(el, stage, found, causes, near);
    if (move) show(el);
    history.replaceState(null, "", `#${el.id}`);
  }

  // Direct links first, then by line.
  const inOrder = (lines) => [...lines].sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  const visible = (el) => el && el.offsetParent !== null;

  // Scroll inside of the column only.
  function show(el) {
    const box = el.closest(".lines"), b = box.getBoundingClientRect(), e = el.getBoundingClientRect();
    if (!e.height || (e.top > b.top + 30 && e.bottom < b.bottom - 10)) return;
    box.scrollTop += e.top - b.top - b.height / 3;
  }

  const nameOf = (el) => el.querySelector("b").textContent;

  function neighbours(el) {
    const name = nameOf(el), operands = new Set(el.textContent.match(/%\w+/g)), near = { operand: [], user: [] };
    operands.delete(name);
    const uses = new RegExp(`${name}(?!\\w)`);
    for (const line of el.parentElement.querySelectorAll('[role="option"]')) {
      if (line === el) continue;
      if (operands.has(nameOf(line))) near.operand.push(line);
      else if (uses.test(line.textContent)) near.user.push(line);
    }
    return near;
  }

  // ------------------------------------------------------------------------------------------------------------- panel

  const make = (tag, className, ...children) => {
    const el = document.createElement(tag);
    if (className) el.className = className;
    el.append(...children);
    return el;
  };

  function text(el) {
    const type = el.querySelector("s");
    return el.textContent.slice(0, type ? -type.textContent.length : undefined).trim() + (type ? `  ${type.textContent}` : "");
  }

  function reference(el, made) {
    const button = make("button", made ? "ref made" : "ref", text(el));
    button.type = "button";
    button.addEventListener("click", () => { open(el); choose(el); el.focus({ preventScroll: true }); });
    return button;
  }

  function tell(el, stage, found, causes, near) {
    const parts = [make("h2", "", `${data.stages[stage]}, ${el.closest(".group").getAttribute("aria-label")}`), make("div", "node", text(el))];
    for (const [kind, label] of [["operand", "operands"], ["user", "used by"]]) {
      if (near[kind].length) parts.push(make("div", "near", label, ...near[kind].slice(0, 12).map((line) => {
        const b = reference(line); b.textContent = nameOf(line); b.title = text(line); return b;
      }), near[kind].length > 12 ? `and ${near[kind].length - 12} more` : ""));
    }
    for (let k = stage - 1; k >= 0; k--) parts.push(way(k, k, found[k], causes[k], "came from"));
    for (let k = stage; k < data.links.length; k++) parts.push(way(k, k + 1, found[k + 1], causes[k], "became"));
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  }

  const SHOWN = 8;

  function way(boundary, to, lines, causes, word) {
    const name = data.stages[word === "became" ? to : boundary + 1];
    const section = make("section", "way", make("h3", "", `${data.stages[boundary]} → ${name}`, make("span", "", word)));
    if (!data.sizes[to]) { section.append(make("p", "none", "no recorded link: the renderer gives text")); return section; }
    if (!lines.size) { section.append(make("p", "none", "no recorded link")); return section; }
    const { passes, steps } = reasons(causes);
    if (data.same[word === "became" ? to : boundary + 1]) { section.classList.add("still"); section.append(make("p", "none", "unchanged")); return section; }
    const sorted = inOrder(lines);
    const refs = make("div", "refs");
    for (const [n, made] of sorted.slice(0, SHOWN)) { const line = at(to, n); if (line) refs.append(reference(line, made)); }
    section.append(refs);
    if (sorted.length > SHOWN) section.append(make("p", "by", `and ${sorted.length - SHOWN} more lines`));
    section.append(passes.size ? make("p", "by", "by ", make("b", "", [...passes].join(", "))) : make("p", "by", steps.size ? "by rules" : "unchanged"));
    for (const step of [...steps].slice(0, SHOWN)) section.append(rule(step));
    if (steps.size > SHOWN) section.append(make("p", "by", `and ${steps.size - SHOWN} more steps`));
    return section;
  }

  function reasons(causes) {
    const passes = new Set(), steps = new Set();
    for (const c of causes) for (const [by, step] of data.causes[c]) if (step < 0) passes.add(by); else steps.add(step);
    return { passes, steps };
  }

  function rule(step) {
    const [name, before, after, bound] = data.steps[step];
    const box = make("div", "rule", make("h4", "", name, make("span", "", "rule")));
    const statement = data.rules[name];
    if (statement) box.append(make("code", "", statement.slice(name.length + 2)));
    const where = Object.entries(bound).map(([k, v]) => `${k} = ${v}`).join(", ");
    const rows = [["before", before], ["after", after]].concat(where ? [["where", where]] : []);
    box.append(make("div", "ba", ...rows.flatMap(([label, value]) => [make("span", "", label), make("code", "", value)])));
    return box;
  }

  // ----------------------------------------------------------------------------------------------------------- columns

  const toggles = [...document.querySelectorAll(".toggles button")];

  // A column that is as the one before has no lines of its own until it is opened.
  function fill(k) {
    const box = columns[k].querySelector(".lines");
    if (!data.same[k] || box.firstElementChild) return;
    fill(k - 1);
    box.innerHTML = columns[k - 1].querySelector(".lines").innerHTML.replaceAll(`id="s${k - 1}n`, `id="s${k}n`);
    for (const line of box.querySelectorAll('[role="option"]')) {
      line.classList.remove("on", "made", "operand", "user");
      line.setAttribute("aria-selected", "false");
    }
    if (chosen) choose(chosen, false);
  }

  function setOpen(k, isOpen) {
    if (isOpen) fill(k);
    columns[k].classList.toggle("shut", !isOpen);
    toggles[k].setAttribute("aria-pressed", String(isOpen));
  }
  function open(el) { setOpen(+el.closest(".column").dataset.column, true); }
  toggles.forEach((b, k) => b.addEventListener("click", () => setOpen(k, columns[k].classList.contains("shut"))));
  columns.forEach((c, k) => c.addEventListener("click", () => { if (c.classList.contains("shut")) setOpen(k, true); }));

  // ------------------------------------------------------------------------------------------------------------ kernel

  function onlyKernel() {
    const k = kernel.value;
    document.querySelectorAll(".outside").forEach((el) => el.classList.remove("outside"));
    data.groups.forEach((groups, stage) => {
      if (groups.length === 1 && document.querySelectorAll(`.column[data-column="${stage}"] .group`).length === 1) return;
      columns[stage].querySelectorAll(".group").forEach((g) => { g.hidden = k !== "" && g.dataset.kernel !== k; });
    });
    if (k === "" || data.groups[data.groups.length - 1].length < 2) return;
    // Lines of the stages before kernels that no line of this kernel came from.
    const start = data.groups.findIndex((g) => g.length > 1);
    if (start < 1) return;
    let wanted = new Set();
    const [first, size] = data.groups[start][+k];
    for (let n = first; n < first + size; n++) wanted.add(n);
    for (let stage = start; stage > 0; stage--) {
      const before = new Set();
      for (const n of wanted) for (const p of backward[stage - 1].get(n) || []) before.add(data.links[stage - 1][p]);
      for (let n = 0; n < data.sizes[stage - 1]; n++) if (!before.has(n)) at(stage - 1, n)?.classList.add("outside");
      wanted = before;
    }
  }
  kernel.addEventListener("change", onlyKernel);

  // ------------------------------------------------------------------------------------------------------------ filter

  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const line of document.querySelectorAll('[role="option"]')) {
      const content = words.length ? line.textContent.toLowerCase() : "";
      const hit = words.every((w) => content.includes(w));
      line.classList.toggle("out", !hit);
      line.classList.toggle("hit", hit && words.length > 0);
    }
  });

  // -------------------------------------------------------------------------------------------------------------- keys

  function step(el, by) {
    const all = [...el.closest(".lines").querySelectorAll('[role="option"]')];
    for (let k = all.indexOf(el) + by; k >= 0 && k < all.length; k += by) if (visible(all[k])) return all[k];
    return null;
  }

  function across(el, by) {
    const [stage, n] = place(el), { found } = closure(stage, n, false);
    for (let k = stage + by; k >= 0 && k < columns.length; k += by) {
      if (columns[k].classList.contains("shut")) continue;
      const line = inOrder(found[k]).map(([m]) => at(k, m)).find(visible);
      if (line) return line;
      if (found[k].size === 0) break;
    }
    return null;
  }

  const MOVES = { ArrowDown: (el) => step(el, 1), ArrowUp: (el) => step(el, -1), ArrowRight: (el) => across(el, 1), ArrowLeft: (el) => across(el, -1) };

  function roving(el) {
    document.querySelectorAll('[role="option"][tabindex="0"]').forEach((x) => { if (x.closest(".lines") === el.closest(".lines")) x.tabIndex = -1; });
    el.tabIndex = 0;
  }

  main.addEventListener("click", (e) => {
    const el = e.target.closest('[role="option"]');
    if (el) { choose(el === chosen ? null : el, false); }
  });
  main.addEventListener("focusin", (e) => { const el = e.target.closest('[role="option"]'); if (el) roving(el); });
  main.addEventListener("keydown", (e) => {
    const el = e.target.closest('[role="option"]');
    if (!el || e.ctrlKey || e.metaKey || e.altKey) return;
    if (MOVES[e.key]) {
      e.preventDefault();
      const next = MOVES[e.key](el);
      if (next) { next.focus({ preventScroll: true }); show(next); next.closest(".column").scrollIntoView({ block: "nearest", inline: "nearest" }); }
    } else if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      choose(el === chosen ? null : el);
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target === filter;
    if (e.key === "Escape") { if (typing) { filter.value = ""; filter.dispatchEvent(new Event("input")); filter.blur(); } else choose(null); }
    else if (typing || e.target === kernel) return;
    else if (e.key === "/") { e.preventDefault(); filter.focus(); }
    else if (e.key === "j" || e.key === "k") {
      const next = kernel.selectedIndex + (e.key === "j" ? 1 : -1);
      if (next >= 0 && next < kernel.options.length) { kernel.selectedIndex = next; onlyKernel(); }
    }
  });
  for (const lines of document.querySelectorAll(".lines")) { const first = lines.querySelector('[role="option"]'); if (first) first.tabIndex = 0; }

  direct.addEventListener("click", () => {
    direct.setAttribute("aria-pressed", String(direct.getAttribute("aria-pressed") !== "true"));
    if (chosen) choose(chosen, false);
  });
  document.getElementById("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });

  const asked = /^#s(\d+)n\d+$/.exec(location.hash);
  if (asked && columns[asked[1]]) setOpen(+asked[1], true);
  const linked = asked && document.getElementById(asked[0].slice(1));
  if (linked) { open(linked); choose(linked); linked.closest(".column").scrollIntoView({ inline: "center", block: "nearest" }); }
})();
