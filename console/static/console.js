// Times in the viewer's zone, "/" for the search field, the live tail and map. All else works without this file.
(() => {
  "use strict";
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const showTimes = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      element.textContent = format.format(new Date(element.dateTime));
    }
  };
  showTimes(document);
  document.addEventListener("htmx:after:swap", () => showTimes(document));
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const field = document.querySelector('[data-key="/"]');
      if (field) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    }
  });
  const rowsMax = 200;
  const startTail = (section) => {
    const part = (name) => section.querySelector(`[data-tail-${name}]`);
    const [button, state, rows, field] = ["button", "state", "rows", "field"].map(part);
    const body = rows.querySelector("tbody");
    let source = null;
    const say = (text) => { state.textContent = text; };
    const stop = (text) => {
      if (source) source.close();
      source = null;
      button.textContent = "Start";
      say(text);
    };
    const cell = (row, text, kind) => {
      const made = row.insertCell();
      made.textContent = text;
      if (kind) made.className = kind;
      return made;
    };
    const add = (message) => {
      const row = body.insertRow(0);
      const link = document.createElement("a");
      link.href = `${section.dataset.messages}/${message.queue}/${message.offset}`;
      link.textContent = `${message.queue} / ${message.offset.toLocaleString()}`;
      cell(row, "").append(link);
      cell(row, format.format(new Date(message.stored_ms)));
      cell(row, message.key);
      cell(row, message.tag);
      cell(row, message.bytes.toLocaleString(), "n");
      cell(row, message.body, "body");
      while (body.rows.length > rowsMax) body.deleteRow(-1);
    };
    const start = () => {
      const filter = field.querySelector("input").value.trim();
      source = new EventSource(section.dataset.tail + (filter ? `?filter=${encodeURIComponent(filter)}` : ""));
      button.textContent = "Stop";
      rows.hidden = false;
      say("Connecting …");
      source.addEventListener("open", () => say(`New messages appear here, the newest first; the last ${rowsMax} stay.`));
      source.addEventListener("message", (event) => add(JSON.parse(event.data)));
      source.addEventListener("end", (event) => stop(JSON.parse(event.data).text));
      source.addEventListener("error", () => {
        if (source && source.readyState === EventSource.CLOSED) {
          stop("The tail was refused: the filter has a fault, or too many tails are open.");
        } else if (source) {
          say("The connection is lost: trying again.");
        }
      });
    };
    button.addEventListener("click", () => (source ? stop("Stopped.") : start()));
    button.hidden = field.hidden = false;
    say("Shows messages of this topic as they are stored. Nothing is leased, and no group moves.");
  };
  document.querySelectorAll("[data-tail]").forEach(startTail);
  // A part that the server tells to have changed is asked for anew; every two seconds where there is no place for a stream.
  const pollMs = 2000;
  const follow = (part) => {
    const refresh = () => part.dispatchEvent(new CustomEvent("changed"));
    const poll = () => setInterval(() => { if (!document.hidden) refresh(); }, pollMs);
    const source = new EventSource(part.dataset.stream);
    source.addEventListener("changed", refresh);
    source.addEventListener("end", () => source.close());
    source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) poll(); });
  };
  document.querySelectorAll("[data-stream]").forEach(follow);
  // A table that is wider than the window can be scrolled by keyboard, too.
  const makeScrollable = () => {
    for (const each of document.querySelectorAll(".scroll:not([tabindex])")) {
      if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    }
  };
  makeScrollable();
  // On a narrow screen the menu is one line: show where we are.
  const current = document.querySelector('.side nav [aria-current="page"]');
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;
  window.addEventListener("resize", makeScrollable);
  document.addEventListener("htmx:after:swap", makeScrollable);
  document.addEventListener("toggle", makeScrollable, true);
})();
