"use strict";
// Fetches the page anew and puts it in place, so that the reader's scroll position
// and selection stay; and reads a value off a chart under the pointer.
(function () {
  const svg = "http://www.w3.org/2000/svg";
  let pointer = null;

  async function refresh() {
    const main = document.getElementById("main");
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      main.replaceWith(document.adoptNode(next.getElementById("main")));
      document.title = next.title;
      if (pointer) read(pointer);
    } catch {
      const state = document.getElementById("state");
      state.textContent = "no answer";
      state.className = "pill bad";
    }
    document.documentElement.dataset.refreshed = Number(document.documentElement.dataset.refreshed || 0) + 1;
    wait();
  }

  function wait() {
    setTimeout(() => (document.hidden ? wait() : refresh()), 1000 * document.getElementById("main").dataset.refresh);
  }

  function read(at) {
    document.querySelectorAll(".reading, .cursor").forEach((e) => e.remove());
    const under = document.elementFromPoint(at.x, at.y);
    const chart = under && under.closest(".chart svg");
    if (!chart) return;
    const box = chart.getBoundingClientRect();
    const x = ((at.x - box.left) / box.width) * chart.viewBox.baseVal.width;
    const texts = [];
    let found = null;
    chart.querySelectorAll("path.line").forEach((line) => {
      let best = null;
      for (const p of line.dataset.points.split(";")) {
        const [px, py, value] = p.split(",");
        if (value !== undefined && (!best || Math.abs(px - x) < Math.abs(best.px - x))) best = { px, py, value };
      }
      if (best) {
        found = best;
        texts.push(line.dataset.name + " " + best.value);
      }
    });
    if (!found) return;
    const cursor = document.createElementNS(svg, "line");
    for (const [k, v] of Object.entries({ class: "cursor", x1: found.px, x2: found.px, y1: 10, y2: 136 })) cursor.setAttribute(k, v);
    const label = document.createElementNS(svg, "text");
    for (const [k, v] of Object.entries({ class: "reading", x: found.px, y: 20, dx: found.px > 214 ? -6 : 6 })) label.setAttribute(k, v);
    label.setAttribute("text-anchor", found.px > 214 ? "end" : "start");
    label.textContent = texts.join(" · ");
    chart.append(cursor, label);
  }

  document.addEventListener("pointermove", (e) => read((pointer = { x: e.clientX, y: e.clientY })));
  wait();
})();
