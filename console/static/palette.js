// The command palette: Ctrl-K or the button opens a dialog over the page /search. Without this file the button is a link.
(() => {
  "use strict";
  const DELAY_MS = 120;
  const palette = document.getElementById("palette");
  const button = document.querySelector("[data-palette]");
  if (!palette || !button) return;
  const field = document.getElementById("palette-text");
  const list = document.getElementById("palette-hits");
  const said = palette.querySelector("[data-palette-said]");
  let hits = [], at = 0, asked = 0, timer = 0;
  const mark = (next) => {
    if (!hits.length) { field.removeAttribute("aria-activedescendant"); return; }
    hits[at]?.setAttribute("aria-selected", "false");
    at = (next + hits.length) % hits.length;
    hits[at].setAttribute("aria-selected", "true");
    hits[at].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", hits[at].id);
  };
  const show = (html) => {
    const found = new DOMParser().parseFromString(html, "text/html");
    const text = field.value.trim();
    list.replaceChildren();
    hits = [];
    for (const group of found.querySelectorAll(".hits")) {
      const made = document.createElement("div");
      made.setAttribute("role", "group");
      const title = document.createElement("h2");
      title.textContent = group.querySelector("h2").firstChild.textContent.trim();
      title.setAttribute("aria-hidden", "true");
      made.setAttribute("aria-label", title.textContent);
      made.append(title);
      for (const link of group.querySelectorAll("[data-hit]")) {
        const hit = document.createElement("a");
        hit.href = link.getAttribute("href");
        hit.textContent = link.textContent;
        hit.id = `hit-${hits.length}`;
        hit.tabIndex = -1;
        hit.setAttribute("role", "option");
        hit.setAttribute("aria-selected", "false");
        made.append(hit);
        hits.push(hit);
      }
      list.append(made);
    }
    said.textContent = hits.length ? `${hits.length} found` : `Nothing has ${text} in its name`;
    if (!hits.length) {
      const none = document.createElement("p");
      none.className = "hint";
      none.textContent = said.textContent;
      list.append(none);
    }
    at = 0;
    mark(0);
  };
  const ask = async () => {
    const number = asked += 1;
    try {
      const response = await fetch(`/search?q=${encodeURIComponent(field.value)}`, { headers: { "HX-Request": "true" } });
      if (number !== asked) return;
      if (response.status === 401) { location.reload(); return; }
      if (response.ok) show(await response.text());
    } catch { said.textContent = "The console does not answer."; }
  };
  const open = () => {
    if (palette.open) { field.select(); return; }
    palette.showModal();
    field.value = "";
    field.focus();
    ask();
  };
  button.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      open();
    }
  });
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, DELAY_MS); });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); mark(at + step); }
    if (event.key === "Escape") { event.preventDefault(); palette.close(); }  // a search field would only be emptied
    if (event.key === "Enter" && hits[at]) { event.preventDefault(); hits[at].click(); }
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
})();
