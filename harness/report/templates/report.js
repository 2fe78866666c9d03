"use strict";
(() => {
  const PAGE = 200;
  const MISSING = "–";

  // --- light and dark: the system's wish until the reader says otherwise -------------------------------------
  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("harness-theme"); } catch { return null; } };
  const setTheme = (name) => {
    root.dataset.theme = name;
    themeButton.setAttribute("aria-pressed", String(name === "dark"));
  };
  setTheme(stored() || (wish.matches ? "dark" : "light"));
  wish.addEventListener("change", () => { if (!stored()) setTheme(wish.matches ? "dark" : "light"); });
  themeButton.addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("harness-theme", name); } catch { /* a page opened from a file may not keep it */ }
  });

  // --- tables -------------------------------------------------------------------------------------------------
  const leading = /^[~+]?(−|-)?\d[\d\u2009\u202f ]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\d\w:-])/;
  const numeric = (text) => {
    const found = leading.exec(text);
    return found ? Number(found[0].replace("−", "-").replace(/[~+\s]/g, "")) : NaN;
  };
  const compare = (a, b) => {
    if ((a === MISSING || a === "") !== (b === MISSING || b === "")) return a === MISSING || a === "" ? 2 : -2;
    const [x, y] = [numeric(a), numeric(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return Math.sign(x - y);
    return Math.sign(a.localeCompare(b, "en", { numeric: true }));
  };

  for (const table of document.querySelectorAll("table[data-table]")) {
    const body = table.tBodies[0];
    const rest = document.querySelector(`template[data-rest="${table.id}"]`);
    const more = document.querySelector(`[data-more="${table.id}"]`);
    const filter = document.querySelector(`[data-filter="${table.id}"]`);
    const count = document.querySelector(`[data-count="${table.id}"]`);
    const headings = [...table.tHead.rows[0].cells];
    let rows = null;
    let limit = PAGE;

    const every = () => {
      if (rows === null) {
        rows = [...body.rows];
        if (rest) rows.push(...rest.content.querySelectorAll("tr"));
      }
      return rows;
    };
    const text = (row, column) => row.cells[column].firstChild ? row.cells[column].textContent.trim() : "";
    const show = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = every().filter((row) => {
        const content = row.textContent.toLowerCase();
        return words.every((word) => content.includes(word));
      });
      body.replaceChildren(...found.slice(0, limit));
      more.hidden = found.length <= limit;
      count.value = words.length ? `${found.length} of ${every().length} rows` : `${every().length} rows`;
    };

    headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = every().map((row) => [text(row, column), row]);
      keyed.sort(([a], [b]) => {
        const order = compare(a, b);
        return Math.abs(order) === 2 ? order : up ? order : -order; // what is missing comes last, both ways
      });
      rows = keyed.map(([, row]) => row);
      show();
    }));
    filter.addEventListener("input", () => { limit = PAGE; show(); });
    more.addEventListener("click", () => { limit += PAGE * 5; show(); });
  }

  // --- details on demand -----------------------------------------------------------------------------------------
  const details = JSON.parse(document.getElementById("details").textContent);
  const dialog = document.getElementById("detail");
  const heading = document.getElementById("detail-title");
  const target = document.getElementById("detail-body");
  const element = (name, content, attributes = {}) => {
    const made = document.createElement(name);
    if (content !== null) made.textContent = content;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const grid = (columns, lines) => {
    const table = element("table", null);
    const head = table.createTHead().insertRow();
    columns.forEach((column) => head.append(element("th", column, { scope: "col" })));
    const into = table.createTBody();
    lines.forEach((line) => {
      const row = into.insertRow();
      line.forEach((value) => { row.insertCell().textContent = value === null ? MISSING : value; });
    });
    const scroll = element("div", null, { class: "scroll", tabindex: "0" });
    scroll.append(table);
    return scroll;
  };
  const part = (title, node) => target.append(element("h3", title), node);
  const fill = (detail) => {
    heading.textContent = detail.title;
    target.replaceChildren();
    if (detail.picture) target.append(element("img", null, { src: detail.picture, alt: detail.alt }));
    if (detail.link) {
      const line = element("p", null);
      line.append(element("a", detail.link, { href: detail.link }));
      target.append(line);
    }
    if (detail.failure) part("Failure", element("pre", detail.failure));
    if (detail.log) part("End of the log", element("pre", detail.log, { tabindex: "0", class: "tall" }));
    if (detail.steps) {
      const steps = grid(detail.steps.columns, detail.steps.rows);
      steps.classList.add("tall");
      part("Steps", steps);
    }
    for (const [title, pairs] of detail.facts) part(title, grid(["Setting", "Value"], pairs));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (!button) return;
    fill(details[button.dataset.open]);
    dialog.showModal();
    dialog.scrollTop = 0;
  });
})();
