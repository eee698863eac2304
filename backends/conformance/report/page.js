"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const panel = $("panel"), work = document.querySelector(".work"), tools = document.querySelector(".tools");
  const heads = [...document.querySelector("th.corner").parentElement.children]; // other tables have heads, too
  const dtypes = heads.slice(1, -1).map((th) => th.title);
  const lines = [...document.querySelectorAll("tr[data-row]")];
  const squares = lines.map((tr) => [...tr.querySelectorAll("td:not(.ulp)")]);
  const distances = lines.map((tr) => tr.querySelector("td.ulp"));
  const columns = [...document.querySelectorAll("colgroup col")];
  const state = { level: root.dataset.level, status: "", family: "", text: "", at: null, open: null };

  // ------------------------------------------------------------------------------------------------------- verdicts

  /** The verdict of one entry of data.cells at the level shown. */
  function verdict(entry) {
    const v = state.level === "core" && entry[2] !== 0 ? entry[2] : entry[1];
    const [status, elements, failed, ulp, sets, reason, failures] = v;
    const word = data.strings[status];
    return { edge: data.strings[entry[0]], word, key: data.keys[word], elements, failed, ulp, sets: data.strings[sets], reason: data.strings[reason], failures: failures || [] };
  }

  const MOST = 12; // failures shown
  const entries = (row, dtype) => (data.cells[row] || {})[dtype] || [];
  const attribute = () => (state.level === "core" ? "c" : "s");

  // ---------------------------------------------------------------------------------------------------- small things

  /** An element: el("p", {class: "x"}, child or text...). */
  function el(name, attributes, ...children) {
    const e = document.createElement(name);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
  }

  const count = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  const distance = (x) => (x === 0 ? "0" : Number.isInteger(x) && x < 1e4 ? String(x) : x < 1e3 ? x.toFixed(1) : x.toExponential(0).replace("e+", "e"));

  function copyable(text) {
    const button = el("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const box = el("textarea", {});
        box.value = text;
        document.body.append(box);
        box.select();
        document.execCommand("copy");
        box.remove();
      }
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1200);
    });
    return el("div", { class: "code" }, el("pre", { tabindex: "0" }, text), button);
  }

  // ---------------------------------------------------------------------------------------------------------- panel

  function edgeTable(found) {
    const rows = found.map((v) => el("tr", {},
      el("td", {}, v.edge), el("td", {}, el("span", { class: `status ${v.key}` }, v.word)),
      el("td", { class: "num" }, v.failed ? `${count(v.failed)} of ${count(v.elements)}` : count(v.elements)),
      el("td", { class: "num" }, distance(v.ulp)), el("td", { class: "sets" }, v.sets)));
    const head = ["Edge class", "Status", "Elements", "ulp", "Allowed sets"];
    return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((h, k) => el("th", k === 2 || k === 3 ? { class: "num" } : {}, h)))), el("tbody", {}, ...rows));
  }

  function failureBox(f, v) {
    const facts = [["of", f.operands.join("\n")], ["got", f.got], ["allowed", f.allowed]].filter(([, text]) => text);
    const where = f.element === null ? v.edge : `${v.edge}, element ${f.element}`;
    const list = el("dl", {}, ...facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", { class: name, style: "white-space:pre-line" }, text)]));
    return el("div", { class: v.key === "xfail" ? "failure expected" : "failure" },
      el("h4", {}, where), el("p", {}, f.element === null || f.got === null ? f.message : f.case), facts.length ? list : null);
  }

  function specification(row) {
    const text = data.rows[row];
    if (!text) return null;
    const claims = text.claims.map(([id, words, ruling]) => el("li", {}, el("code", {}, id), el("span", {}, words + (ruling ? ` (${ruling})` : ""))));
    const rulings = text.rulings.filter((id) => data.rulings[id]).map((id) => el("p", {}, el("b", {}, id), ` ${data.rulings[id]}`));
    return el("section", {}, el("h3", {}, "What the specification says"), el("p", {}, text.semantics),
      claims.length ? el("ul", { class: "claims" }, ...claims) : null, rulings.length ? el("div", { class: "rulings" }, ...rulings) : null);
  }

  function reproducers(found) {
    const names = [...new Set(found.flatMap((v) => v.failures.map((f) => f.reproducer)).filter(Boolean))];
    if (!names.length) return null;
    const section = el("section", {}, el("h3", {}, names.length > 1 ? "Reproducers" : "Reproducer"));
    for (const name of names) {
      section.append(copyable(`uops run ${name}.uops \\\n  --inputs ${name}.npz \\\n  --backend ${data.backend}`));
      if (data.programs[name]) section.append(copyable(data.programs[name]));
    }
    return section;
  }

  /** Show the panel of a square. */
  function open(row, dtype, keep) {
    const list = entries(row, dtype);
    const r = lines.findIndex((tr) => tr.dataset.row === row), c = dtypes.indexOf(dtype);
    if (!list.length || r < 0) return false;
    state.open = { row, dtype };
    const found = list.map(verdict);
    const order = ["fail", "wait", "none", "xfail", "pass", "mute"];
    found.sort((a, b) => order.indexOf(a.key) - order.indexOf(b.key));
    const reasons = [...new Set(found.map((v) => v.reason).filter(Boolean))];
    const words = [...new Set(found.map((v) => v.word))].map((w) => `${found.filter((v) => v.word === w).length} ${w}`);
    const sum = `${found.length} edge class${found.length > 1 ? "es" : ""} at level ${state.level}: ${words.join(", ")}`;
    const failures = found.flatMap((v) => v.failures.map((f) => [f, v]));
    const boxes = failures.slice(0, MOST).map(([f, v]) => failureBox(f, v));
    if (failures.length > MOST) boxes.push(el("p", { class: "sets", style: "margin-top:.6rem" }, `${failures.length - MOST} more in report.json`));
    const buttons = [["‹", "Previous failing (p)", () => step(-1)], ["›", "Next failing (n)", () => step(1)], ["×", "Close (Esc)", close]].map(([sign, title, act]) => {
      const b = el("button", { type: "button", title, "aria-label": title }, sign);
      b.addEventListener("click", act);
      return b;
    });
    const family = row.includes("/") ? `${row.slice(0, row.indexOf("/"))} / ` : "";
    panel.replaceChildren(...[
      el("header", {}, el("h2", {}, el("span", {}, family), row.slice(row.indexOf("/") + 1), " ", el("span", {}, dtype)), el("div", { class: "buttons" }, ...buttons), el("p", { class: "sum" }, sum)),
      el("section", {}, edgeTable(found), ...reasons.map((text) => el("p", { class: "sets", style: "margin-top:.5rem" }, text))),
      boxes.length ? el("section", {}, el("h3", {}, failures.length > 1 ? "The first failures" : "The failure"), ...boxes) : null,
      reproducers(found),
      specification(row),
    ].filter(Boolean));
    panel.hidden = false;
    panel.scrollTop = 0;
    work.classList.add("open");
    mark(r, c);
    if (!keep) history.replaceState(null, "", `#${encodeURI(row)}:${dtype}${state.level === data.level ? "" : `@${state.level}`}`);
    return true;
  }

  function mark(r, c) {
    document.querySelectorAll(".chosen, .on").forEach((e) => e.classList.remove("chosen", "on"));
    if (r === undefined) return;
    squares[r][c].classList.add("chosen");
    lines[r].firstElementChild.classList.add("on");
    heads[c + 1].classList.add("on");
    rove(r, c, false);
  }

  function close() {
    panel.hidden = true;
    state.open = null;
    work.classList.remove("open");
    mark();
    history.replaceState(null, "", location.pathname + location.search);
    if (state.at) squares[state.at[0]][state.at[1]].focus();
  }

  /** Open the next (by = 1) or previous (-1) failing square among the rows shown. */
  function step(by) {
    const all = [];
    squares.forEach((row, r) => !lines[r].hidden && row.forEach((td, c) => td.dataset[attribute()] === "fail" && all.push([r, c])));
    if (!all.length) return;
    const place = state.at ? state.at[0] * 100 + state.at[1] : -1;
    const after = all.filter(([r, c]) => (by > 0 ? r * 100 + c > place : r * 100 + c < place));
    const [r, c] = by > 0 ? after[0] || all[0] : after[after.length - 1] || all[all.length - 1];
    open(lines[r].dataset.row, dtypes[c]);
    squares[r][c].scrollIntoView({ block: "nearest" });
  }

  // --------------------------------------------------------------------------------------------------------- matrix

  /** Make one square the stop of the Tab key, and focus it. */
  function rove(r, c, focus) {
    if (state.at) squares[state.at[0]][state.at[1]].tabIndex = -1;
    const td = squares[r][c];
    state.at = [r, c];
    td.tabIndex = 0;
    const words = Object.keys(data.keys).find((w) => data.keys[w] === td.dataset[attribute()]);
    td.setAttribute("aria-label", `${lines[r].dataset.row} ${dtypes[c]}: ${words}`);
    if (focus) td.focus();
  }

  const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

  /** The next square from (r, c) in a direction, over gaps and hidden rows. */
  function move(r, c, [dr, dc]) {
    for (r += dr, c += dc; r >= 0 && r < squares.length && c >= 0 && c < dtypes.length; r += dr, c += dc)
      if (!lines[r].hidden && squares[r][c].dataset.s) return rove(r, c, true);
  }

  document.querySelector(".matrix table").addEventListener("click", (event) => {
    const td = event.target.closest("td[data-s]");
    if (td) open(td.parentElement.dataset.row, dtypes[td.cellIndex - 1]);
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (state.open) close();
      return;
    }
    if (typing) return;
    const td = event.target.closest && event.target.closest("td[data-s]");
    if (td && MOVES[event.key]) move(...state.at, MOVES[event.key]);
    else if (td && (event.key === "Enter" || event.key === " ")) open(td.parentElement.dataset.row, dtypes[td.cellIndex - 1]);
    else if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else if (event.key === "l") setLevel(state.level === "strict" ? "core" : "strict");
    else if (event.key === "/") $("filter").focus();
    else return;
    event.preventDefault();
  });

  // -------------------------------------------------------------------------------------------------------- filters

  /** Whether every word occurs in the row's id, in one of its dtypes or edge classes. */
  const texts = new Map(lines.map((tr) => {
    const cells = data.cells[tr.dataset.row] || {};
    const edges = new Set(Object.values(cells).flatMap((list) => list.map((e) => data.strings[e[0]])));
    return [tr, [tr.dataset.row, ...Object.keys(cells), ...edges].join(" ").toLowerCase()];
  }));

  function filter() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    lines.forEach((tr, r) => {
      const family = tr.parentElement.dataset.family;
      let fits = (!state.family || family === state.family) && words.every((w) => texts.get(tr).includes(w));
      let any = !state.status;
      for (const td of squares[r]) {
        const same = !state.status || td.dataset[attribute()] === state.status;
        td.classList.toggle("faded", !same);
        any = any || same;
      }
      fits = fits && any;
      tr.hidden = !fits;
      shown += fits;
    });
    document.querySelectorAll("tbody[data-family]").forEach((body) => (body.hidden = ![...body.querySelectorAll("tr[data-row]")].some((tr) => !tr.hidden)));
    hideEmptyColumns();
    $("nothing").hidden = shown > 0;
    $("shown").textContent = shown === lines.length ? `${count(shown)} rows` : `${count(shown)} of ${count(lines.length)} rows`;
    const at = state.at && !lines[state.at[0]].hidden;
    if (!at) for (let r = 0; r < lines.length; r++) {
      const c = squares[r].findIndex((td) => td.dataset.s);
      if (!lines[r].hidden && c >= 0) { rove(r, c, false); break; }
    }
  }

  /** Leave out the columns in which no row that is shown has anything: dtypes, and the distances at the end. */
  function hideEmptyColumns() {
    const rows = lines.map((tr, r) => r).filter((r) => !lines[r].hidden);
    dtypes.forEach((_, c) => {
      const empty = rows.length > 0 && rows.every((r) => !squares[r][c].dataset.s);
      heads[c + 1].hidden = columns[c + 1].hidden = empty;
      squares.forEach((row) => (row[c].hidden = empty));
    });
    const exact = rows.length > 0 && rows.every((r) => !distances[r].textContent.trim());
    heads[heads.length - 1].hidden = columns[columns.length - 1].hidden = exact;
    distances.forEach((td) => (td.hidden = exact));
  }

  function setLevel(level) {
    state.level = root.dataset.level = level;
    document.querySelectorAll("[data-set-level]").forEach((b) => b.setAttribute("aria-checked", String(b.dataset.setLevel === level)));
    filter();
    if (state.open) open(state.open.row, state.open.dtype);
  }

  function setStatus(status) {
    state.status = state.status === status ? "" : status;
    document.querySelectorAll("[data-status]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.status === state.status)));
    filter();
  }

  document.querySelectorAll("[data-set-level]").forEach((b) => b.addEventListener("click", () => setLevel(b.dataset.setLevel)));
  document.querySelectorAll("[data-status]").forEach((b) => b.addEventListener("click", () => setStatus(b.dataset.status)));
  $("family").addEventListener("change", (e) => { state.family = e.target.value; filter(); });
  $("filter").addEventListener("input", (e) => { state.text = e.target.value; filter(); });
  $("clear").addEventListener("click", () => {
    $("filter").value = state.text = $("family").value = state.family = "";
    setStatus(state.status);
  });
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // ---------------------------------------------------------------------------------------------------------- start

  const measure = () => root.style.setProperty("--bar-now", getComputedStyle(tools).position === "sticky" ? `${tools.offsetHeight}px` : "0px");
  new ResizeObserver(measure).observe(tools);

  /** #Family/Row:dtype@level opens a square; the level may be left out. */
  function follow() {
    const m = /^#(.+):([^:@]+)(?:@(strict|core))?$/.exec(decodeURI(location.hash));
    if (!m) return;
    if (m[3] && m[3] !== state.level) setLevel(m[3]);
    if (open(m[1], m[2], true)) squares[state.at[0]][state.at[1]].scrollIntoView({ block: "center" });
  }

  document.querySelectorAll("td[data-s]").forEach((td) => (td.tabIndex = -1));
  filter();
  measure();
  follow();
  addEventListener("hashchange", follow);
})();
