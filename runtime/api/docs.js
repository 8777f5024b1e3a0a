"use strict";
// Draws the routes of openapi.json with text nodes only: nothing of the document becomes markup.
fetch("/v1/openapi.json").then((r) => r.json()).then((doc) => {
  const el = (tag, text, cls) => {
    const e = document.createElement(tag);
    if (text) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  };
  const main = document.getElementById("routes");
  main.textContent = "";
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(item)) {
      const box = el("details");
      const head = el("summary");
      head.append(el("span", method.toUpperCase(), "method"), el("span", path, "path"), el("span", " — " + op.summary));
      box.append(head);
      const table = el("table");
      const row = (...cells) => { const tr = el("tr"); cells.forEach((c) => tr.append(el("td", c))); table.append(tr); };
      const scope = (op.security[0] || {}).key;
      row("scope", scope ? scope.join(", ") : "none");
      (op.parameters || []).forEach((p) => row(p.in, p.name + (p.required ? " (required)" : ""), p.description || ""));
      const body = op.requestBody && op.requestBody.content["application/json"].schema;
      if (body) Object.entries(body.properties).forEach(([n, p]) => row("body", n + (body.required.includes(n) ? " (required)" : ""), (p.type || "any") + (p.description ? ": " + p.description : "")));
      box.append(table);
      main.append(box);
    }
  }
});
