// Charts: draws the points of each [data-chart] with uPlot, and draws them anew every 10 seconds. The page has the same
// figures in words without this file.
(() => {
  "use strict";
  const HEIGHT = 170, REFRESH_MS = 10000;
  const STROKES = ["--chart-1", "--chart-2", "--chart-3", "--chart-4", "--chart-5", "--chart-6"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value, steps, units) => {
    let at = 0;
    while (Math.abs(value) >= steps && at < units.length - 1) { value /= steps; at += 1; }
    return `${Number(value.toPrecision(3))}${units[at]}`;
  };
  const amount = (value, unit) => {
    if (value === null || value === undefined) return "–";
    if (unit === "bytes") return short(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
    if (unit === "s" && Math.abs(value) < 1) return value === 0 ? "0" : `${Number((value * 1000).toPrecision(3))} ms`;
    if (unit === "s") return `${Number(value.toPrecision(3))} s`;
    return short(value, 1000, ["", "k", "M", "G"]);
  };
  const time = (marks, isLong) => marks.map((each) => {
    const at = new Date(each * 1000);
    const clock = `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
    return isLong ? `${at.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${clock}` : clock;
  });
  const options = (answer, width) => {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    return {
      width, height: HEIGHT, cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { show: true, live: true },
      scales: { y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, space: 90, values: (u, marks) => time(marks, answer.step_s > 300) }, { ...axis, size: 78, values: (u, marks) => marks.map((each) => amount(each, answer.unit)) }],
      series: [
        { label: "Time", value: (u, at) => (at ? new Date(at * 1000).toLocaleString() : "–") },
        ...answer.labels.map((label, at) => ({
          label, stroke: colour(STROKES[at % STROKES.length]), width: 1.5, points: { show: false },
          dash: at ? [6, 3] : undefined, value: (u, value) => amount(value, answer.unit),
        })),
      ],
    };
  };
  // The legend shows the last point while no point is under the cursor.
  const last = (element) => {
    const [times, ...values] = element.plot.data;
    let at = times.length - 1;
    while (at > 0 && values.every((each) => each[at] === null)) at -= 1;
    if (element.plot.cursor.idx === null || element.plot.cursor.left < 0) element.plot.setLegend({ idx: at });
  };
  const later = (element) => requestAnimationFrame(() => { if (element.plot) last(element); });  // none while it is drawn anew
  const draw = async (element) => {
    let answer;
    try {
      const response = await fetch(element.dataset.chart, { headers: { Accept: "application/json" } });
      if (!response.ok) return;
      answer = await response.json();
    } catch { return; }
    const data = [answer.times, ...answer.values];
    if (element.plot && element.plot.series.length === data.length) { element.plot.setData(data); later(element); return; }
    element.replaceChildren();
    element.plot = new uPlot(options(answer, element.clientWidth), data, element);
    element.classList.add("drawn");
    element.plot.over.addEventListener("mouseleave", () => later(element));
    later(element);
  };
  const all = () => document.querySelectorAll("[data-chart]");
  const again = () => { if (!document.hidden) all().forEach(draw); };
  const fresh = () => { all().forEach((element) => { element.plot = null; draw(element); }); };
  all().forEach(draw);
  setInterval(again, REFRESH_MS);
  document.addEventListener("visibilitychange", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fresh);
  addEventListener("resize", () => all().forEach((element) => {
    if (element.plot) element.plot.setSize({ width: element.clientWidth, height: HEIGHT });
  }));
})();
