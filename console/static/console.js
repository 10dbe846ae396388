// Times in the viewer's zone, and "/" for the search field. Everything works without this file.
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
})();
