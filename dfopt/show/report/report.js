"use strict";
// Headers of tables become buttons that sort: numbers by their value, texts by letters, what is missing last.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column], words = cell.textContent.trim(), number = cell.dataset.v;
        return { row, words, number: number === undefined ? NaN : Number(number) };
      });
      const sign = down ? -1 : 1;
      const rank = (one) => (!Number.isNaN(one.number) ? 0 : one.words === "" || one.words === "-" ? 2 : 1);
      keyed.sort((a, b) => {
        if (rank(a) !== rank(b)) return rank(a) - rank(b);
        if (rank(a) === 0) return sign * (a.number - b.number);
        return sign * a.words.localeCompare(b.words, "en", { numeric: true });
      });
      body.append(...keyed.map((one) => one.row));
    });
  });
}
