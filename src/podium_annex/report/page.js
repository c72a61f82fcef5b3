// What can be done with a report: sort tables, pick a cell of the confusion matrix, filter the gallery, mark labels.
"use strict";

const data = JSON.parse(document.getElementById("page-data").textContent);
const $ = (id) => document.getElementById(id);
const percent = (share) => (100 * (share || 0)).toFixed(1) + "\u00a0%"; // does not break before the sign

// --- tables ---------------------------------------------------------------------------------------

function sortBy(header) {
  const table = header.closest("table"), body = table.tBodies[0];
  const column = [...header.parentNode.children].indexOf(header);
  const falls = header.getAttribute("aria-sort") !== "descending";
  const value = (row) => {
    const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
    return text === "" || isNaN(text) ? text : Number(text);
  };
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  });
  if (falls) rows.reverse();
  body.append(...rows);
  for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", falls ? "descending" : "ascending");
}

for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", () => sortBy(button.parentNode));

// --- gallery --------------------------------------------------------------------------------------

const KINDS = {
  suspects: { filter: (card) => card.suspect, order: "suspect" },
  mistakes: { filter: (card) => card.label && card.label !== card.predicted && !card.pair, order: "confidence" },
  correct: { filter: (card) => card.label === card.predicted && !card.pair, order: "confidence" },
  pairs: { filter: (card) => card.pair, order: "pair" },
};
const ORDERS = {
  suspect: (a, b) => (a.suspect || 1e9) - (b.suspect || 1e9),
  confidence: (a, b) => (b.confidence || 0) - (a.confidence || 0),
  label: (a, b) => (a.label_prob || 0) - (b.label_prob || 0),
  pair: (a, b) => (a.pair || 1e9) - (b.pair || 1e9),
  id: (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }),
};
const AT_ONCE = 60;
const MANY = 500; // classes
let shown = AT_ONCE;

function chosenCards() {
  const kind = KINDS[$("kind").value], label = $("label").value, predicted = $("predicted").value;
  const words = $("find").value.trim().toLowerCase();
  return data.cards
    .filter((card) => kind.filter(card))
    .filter((card) => !label || card.label === label)
    .filter((card) => !predicted || card.predicted === predicted)
    .filter((card) => !words || card.id.toLowerCase().includes(words))
    .sort(ORDERS[$("order").value]);
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

function pictureOf(card) {
  const source = $("look").checked && card.heat ? card.heat : card.thumbnail;
  const picture = source
    ? element("img", { src: "data:image/jpeg;base64," + source, alt: `image ${card.id}`, loading: "lazy" })
    : element("span", { class: "quiet" }, "cannot be read");
  const link = element("a", { class: "picture", href: data.folder + encodeURI(card.image).replace(/[?#]/g, encodeURIComponent) });
  link.append(picture);
  return link;
}

function factsOf(card) {
  const facts = [["id", card.id]];
  if (card.label) facts.push(["label", `${card.label}`]);
  else facts.push(["", "test image"]);
  const list = element("dl", {});
  const add = (name, value, ofName = {}, ofValue = {}) =>
    list.append(element("div", {}, element("dt", ofName, name), element("dd", ofValue, value)));
  for (const [name, value] of facts) add(name, value);
  if (card.predicted) {
    const tone = card.label === card.predicted ? "good" : "bad";
    add("predicted", card.predicted, {}, { class: tone });
    const number = (name, title, share) => add(name, percent(share), { title }, { class: "number" });
    number("confidence", "the model's probability of the predicted class", card.confidence);
    if (tone === "bad") number("its label", "the model's probability of the label", card.label_prob);
  }
  if (card.suspect) add("suspect", `no. ${card.suspect}`);
  if (card.pair) add("pair", `no. ${card.pair}`);
  return list;
}

function markOf(card) {
  const first = card.suggested || (card.label !== card.predicted ? card.predicted : "");
  const others = data.classes.filter((name) => name !== first && name !== card.label);
  const select = element("select", { "aria-label": `judge the label of ${card.id}` });
  const option = (value, text) => select.append(element("option", { value }, text));
  const fill = () => {
    const value = marks[card.id] ?? "";
    select.replaceChildren();
    option("", "not judged");
    option(card.label, "label is right");
    for (const name of first ? [first, ...others] : others) option(name, `should be ${name}`);
    option(data.drop, "drop the image");
    select.value = value;
  };
  if (data.classes.length <= MANY) fill();
  else {
    // Sixty cards with an option for each of thousands of classes would take seconds: a card gets them when it is used.
    const value = marks[card.id] ?? "";
    option("", "not judged");
    if (value) option(value, value === card.label ? "label is right" : value === data.drop ? "drop the image" : `should be ${value}`);
    select.value = value;
    select.addEventListener("focus", fill, { once: true });
    select.addEventListener("pointerdown", () => select.focus(), { once: true });
  }
  select.addEventListener("change", () => mark(card, select.value));
  return select;
}

function draw() {
  const cards = chosenCards(), list = $("cards");
  list.replaceChildren(...cards.slice(0, shown).map((card) => {
    const item = element("li", { class: "card" + (marks[card.id] ? " marked" : ""), "data-id": card.id });
    item.append(pictureOf(card), factsOf(card));
    if (card.label) item.append(markOf(card));
    return item;
  }));
  $("count").textContent = `${cards.length.toLocaleString("en")} ${cards.length === 1 ? "image" : "images"}`;
  $("more").hidden = cards.length <= shown;
}

function redraw() {
  shown = AT_ONCE;
  for (const button of document.querySelectorAll(".matrix button"))
    button.setAttribute("aria-pressed", button.dataset.label === $("label").value && button.dataset.predicted === $("predicted").value);
  draw();
}

// --- confusion matrix -----------------------------------------------------------------------------

function pick(button) {
  $("kind").value = button.dataset.label === button.dataset.predicted ? "correct" : "mistakes";
  $("order").value = "confidence";
  $("label").value = button.dataset.label;
  $("predicted").value = button.dataset.predicted;
  redraw();
  $("gallery").scrollIntoView();
  $("count").focus({ preventScroll: true });
}

function moveInMatrix(event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const step = steps[event.key], cell = event.target.closest("td");
  if (!step || !cell) return;
  let row = cell.parentNode.rowIndex, column = cell.cellIndex, button = null;
  const table = cell.closest("table");
  while (!button) {
    row += step[0];
    column += step[1];
    const next = table.rows[row]?.cells[column];
    if (!next || next.tagName !== "TD") return;
    button = next.querySelector("button");
  }
  event.preventDefault();
  event.target.tabIndex = -1;
  button.tabIndex = 0;
  button.focus();
}

// --- marks ----------------------------------------------------------------------------------------

const PLACE = `podium corrections ${data.competition}`;
let marks = {};
try { marks = JSON.parse(localStorage.getItem(PLACE)) || {}; } catch { /* no storage, or not ours: marks live as long as the page */ }

function mark(card, value) {
  if (value) marks[card.id] = value;
  else delete marks[card.id];
  try { localStorage.setItem(PLACE, JSON.stringify(marks)); } catch { /* as above */ }
  document.querySelector(`.card[data-id="${CSS.escape(card.id)}"]`)?.classList.toggle("marked", Boolean(value));
  countMarks();
}

function countMarks() {
  const count = Object.keys(marks).length;
  $("marked").textContent = count === 1 ? "1 label judged" : `${count} labels judged`;
  $("download").disabled = $("forget").disabled = !count;
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function download() {
  const why = $("why").value.trim();
  const lines = Object.entries(marks).map(([id, value]) => [id, value, why].map(quoted).join(","));
  const text = ["id,label,why", ...lines].join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "corrections.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- start ----------------------------------------------------------------------------------------

if ($("cards")) {
  for (const id of ["label", "predicted"])
    $(id).append(...data.classes.map((name) => element("option", { value: name }, name)));
  for (const id of ["label", "predicted", "order"]) $(id).addEventListener("change", redraw);
  $("kind").addEventListener("change", () => { $("order").value = KINDS[$("kind").value].order; redraw(); });
  $("find").addEventListener("input", redraw);
  $("look").addEventListener("change", draw);
  $("clear").addEventListener("click", () => { for (const id of ["label", "predicted", "find"]) $(id).value = ""; redraw(); });
  $("more").addEventListener("click", () => { shown += 4 * AT_ONCE; draw(); });
  $("download").addEventListener("click", download);
  $("forget").addEventListener("click", () => { marks = {}; try { localStorage.removeItem(PLACE); } catch { /* as above */ } countMarks(); draw(); });
  for (const button of document.querySelectorAll(".matrix button")) button.addEventListener("click", () => pick(button));
  document.querySelector(".matrix")?.addEventListener("keydown", moveInMatrix);
  const kinds = Object.keys(KINDS).filter((kind) => data.cards.some(KINDS[kind].filter));
  for (const option of [...$("kind").options]) option.disabled = !kinds.includes(option.value);
  $("kind").value = kinds[0] || "mistakes";
  $("order").value = KINDS[$("kind").value].order;
  countMarks();
  redraw();
}
